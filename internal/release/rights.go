// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weft-net/weft/internal/model"
)

// right is a verb on a resource.
type right struct {
	group, resource string
	// cluster: the resource has no namespace, or that of the release does not suffice.
	cluster bool
	verbs   []string
}

// rights are those that an installation, an upgrade and a removal need. Roles may be granted only by those who have their
// rights: the API server's own error names these.
func rights() []right {
	write := []string{"get", "list", "create", "patch", "delete"}
	return []right{
		{"", "secrets", false, []string{"get", "list", "create", "update", "delete"}}, // the release
		{"coordination.k8s.io", "leases", false, []string{"get", "create", "update", "delete"}},
		{"", "configmaps", false, write},
		{"", "serviceaccounts", false, write},
		{"apps", "daemonsets", false, write},
		{"apps", "deployments", false, write},
		{"rbac.authorization.k8s.io", "roles", false, write},
		{"rbac.authorization.k8s.io", "rolebindings", false, write},
		{"rbac.authorization.k8s.io", "clusterroles", true, write},
		{"rbac.authorization.k8s.io", "clusterrolebindings", true, write},
		{"admissionregistration.k8s.io", "validatingadmissionpolicies", true, write},
		{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", true, write},
		{"apiextensions.k8s.io", "customresourcedefinitions", true, write},
		{"", "pods", true, []string{"list"}},
	}
}

// checkRights returns an error that names all missing rights, before anything is changed.
func (c *Cluster) checkRights(ctx context.Context) error {
	var missing []string
	for _, r := range rights() {
		var verbs []string
		for _, verb := range r.verbs {
			a := &authorization.ResourceAttributes{Verb: verb, Group: r.group, Resource: r.resource}
			if !r.cluster {
				a.Namespace = c.namespace
			}
			answer, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorization.SelfSubjectAccessReview{
				Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: a},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("rights: %w", err)
			}
			if !answer.Status.Allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) == 0 {
			continue
		}
		name := r.resource
		if r.group != "" {
			name += "." + r.group
		}
		where := " in namespace " + c.namespace
		if r.cluster {
			where = ""
		}
		missing = append(missing, strings.Join(verbs, ", ")+" "+name+where)
	}
	if len(missing) == 0 {
		return nil
	}
	return model.Errorf(model.CodeInvalidConf, "use the context of a cluster's administrator (--context), or have these rights granted",
		"rights are missing, and nothing was changed: %s", strings.Join(missing, "; "))
}
