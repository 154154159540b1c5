// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weft-net/weft/internal/cluster/store"
)

// The rule is that of the authorizer's message; a message of another form has none.
func TestExplainForbidden(t *testing.T) {
	for _, c := range []struct{ reason, want string }{
		{
			`User "a" cannot create resource "pods/exec" in API group "" in the namespace "kube-system"`,
			"a Role in namespace kube-system with apiGroups [\"\"], resources [\"pods/exec\"] and verbs [\"get\", \"create\"]; " +
				"see `kubectl auth can-i create pods --subresource=exec -n kube-system`",
		},
		{
			`User "a" cannot list resource "addresspools" in API group "weft.dev" at the cluster scope: no role`,
			"a ClusterRole with apiGroups [\"weft.dev\"], resources [\"addresspools\"] and verbs [\"list\"]; " +
				"see `kubectl auth can-i list addresspools.weft.dev -A`",
		},
		{"denied by a webhook", "the message names what the user may not do"},
	} {
		err := ExplainForbidden(apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New(c.reason)))
		if !errors.Is(err, store.ErrForbidden) || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	upgrade := errors.New(`unable to upgrade: pods "x" is forbidden: User "a" cannot get resource "pods/exec" ` +
		`in API group "" in the namespace "n"`)
	err := ExplainForbidden(upgrade)
	if !errors.Is(err, store.ErrForbidden) || !strings.Contains(err.Error(), "--subresource=exec -n n") {
		t.Errorf("of a stream: %v", err)
	}
	if err := ExplainForbidden(
		store.ErrNotFound,
	); !errors.Is(err, store.ErrNotFound) ||
		errors.Is(err, store.ErrForbidden) {
		t.Errorf("another error: %v", err)
	}
}
