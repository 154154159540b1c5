// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// ExplainForbidden adds the RBAC rule that is missing to the API server's error Forbidden: for a Role or a ClusterRole,
// and as `kubectl auth can-i` spells it. The error wraps store.ErrForbidden. Other errors are returned as they are.
func ExplainForbidden(err error) error {
	if err == nil {
		return nil
	}
	m := denial().FindStringSubmatch(err.Error()) // a stream that is not upgraded has the message only
	if m == nil && !apierrors.IsForbidden(err) {
		return err
	}
	hint := "the message names what the user may not do"
	if m != nil {
		hint = missingRule(m[1], m[2], m[3], m[4], m[5])
	}
	return model.Errorf(model.CodeNotAvailable, hint, "%w", forbiddenError{err})
}

// denial matches the authorizer's message: User "u" cannot VERB resource "RESOURCE/SUBRESOURCE" in API group "GROUP" in
// the namespace "NAMESPACE", or at the cluster scope. The verb is nowhere else in the error.
func denial() *regexp.Regexp {
	return regexp.MustCompile(
		`cannot (\S+) resource "([^"/]+)(?:/([^"]+))?" in API group "([^"]*)" (?:in the namespace "([^"]+)"|at the cluster scope)`,
	)
}

// forbiddenError is an error Forbidden.
type forbiddenError struct{ error }

func (e forbiddenError) Unwrap() error { return e.error }

func (forbiddenError) Is(target error) bool { return target == store.ErrForbidden }

// missingRule describes a rule.
func missingRule(verb, resource, sub, group, namespace string) string {
	role, canI, resources, verbs := "ClusterRole", "kubectl auth can-i "+verb+" "+resource, resource, fmt.Sprintf(
		"[%q]",
		verb,
	)
	if group != "" {
		canI += "." + group
	}
	if sub != "" {
		canI, resources = canI+" --subresource="+sub, resource+"/"+sub
	}
	if sub == "exec" {
		verbs = `["get", "create"]` // which of them the server asks for depends on its version and on the protocol
	}
	if namespace != "" {
		role, canI = "Role in namespace "+namespace, canI+" -n "+namespace
	} else {
		canI += " -A"
	}
	return fmt.Sprintf(
		"the user needs a %s with apiGroups [%q], resources [%q] and verbs %s; see `%s`",
		role,
		group,
		resources,
		verbs,
		canI,
	)
}
