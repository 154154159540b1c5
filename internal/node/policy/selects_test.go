// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/node/policy"
)

const denyWeb = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-web}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
`

// TestPolicyWithoutNamespace: a policy without a namespace in its manifest is in "default", like pods without one.
func TestPolicyWithoutNamespace(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, other := w.pod("default/web", "app: web"), w.pod("default/other", "app: other")
	w.serve(web, 80)
	w.eventually("without a policy all is allowed", func() bool { return reaches(other.ns, web, 80) })
	w.manifest("deny", denyWeb)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
}

// TestSelectsNoPods: a policy that selects no pod of any namespace is reported as such, until there is one.
func TestSelectsNoPods(t *testing.T) {
	w := newWorld(t)
	w.start()
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Routes().Under(policy.Prefix).Serve(ctx, socket, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	selectsNone := func() (none []string, count int) {
		var s policy.Summary
		if policy.Request(ctx, socket, "summary", nil, &s) != nil || !s.Known {
			return nil, -1
		}
		for _, p := range s.Policies {
			if p.SelectsNoPods {
				none = append(none, p.String())
			}
		}
		return none, len(s.Policies)
	}
	w.object("shop/far", "app: web", "n2", "10.9.1.1")
	w.manifest("friends", onlyFriends)
	w.manifest("deny", denyWeb)
	w.manifest("gone", `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: gone, namespace: nowhere}
spec: {podSelector: {}}
`)
	w.manifest("all", `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: bank}
spec:
  tier: Admin
  priority: 3
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: bank}}}
  ingress: [{action: Deny, from: [{namespaces: {}}]}]
`)
	want := func(all ...string) func() bool {
		return func() bool {
			got, count := selectsNone()
			return count == 4 && slices.Equal(got, all)
		}
	}
	w.eventually("three policies select no pods",
		want("ClusterNetworkPolicy bank", "NetworkPolicy default/deny-web", "NetworkPolicy nowhere/gone"))
	w.object("default/web", "app: web", "n2", "10.9.1.2")
	w.object("bank/till", "", "n2", "10.9.1.3")
	w.eventually("pods came that two of them select", want("NetworkPolicy nowhere/gone"))
	w.remove("pod-bank-till")
	w.eventually("the pod of one is gone", want("ClusterNetworkPolicy bank", "NetworkPolicy nowhere/gone"))
}
