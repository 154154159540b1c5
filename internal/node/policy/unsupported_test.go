// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestOnlyAnUnreadablePolicy: a cluster with only an unsupported policy: pods start nevertheless.
func TestOnlyAnUnreadablePolicy(t *testing.T) {
	w := newWorld(t)
	w.manifest(
		"bad",
		"apiVersion: k8s.cni.cncf.io/v1beta1\nkind: MultiNetworkPolicy\nmetadata: {namespace: shop, name: bad}\nspec: {podSelector: {}}\n",
	)
	w.start()
	w.eventually("the policy is known as faulty", func() bool { return w.Stats().Faulty == 1 })
	web, friend := w.pod("shop/web", "app: web"), w.pod("shop/friend", "app: friend")
	w.serve(web, 80)
	w.eventually("pods reach each other", func() bool { return reaches(friend.ns, web, 80) })
}

// TestNextSandboxOfAPod: a pod's next sandbox starts before the last one has ended: its namespace gets the table, and
// keeps it.
func TestNextSandboxOfAPod(t *testing.T) {
	w := newWorld(t)
	w.manifest("fast", onlyFastFriends)
	w.start()
	old := w.bridged(w.pod("shop/web", "app: web"), 2)
	next := old.WorkloadEndpoint
	ns := nettest.NS(t, "next")
	id, err := ns.ID()
	if err != nil {
		t.Fatal(err)
	}
	next.Attachment.ContainerID, next.Netns, next.NetnsID = "c-next", ns.Path(), id
	w.eventually("the first one's table stands", func() bool {
		return nettest.Run(t, old.ns, "nft", "list", "tables") != ""
	})
	if err := w.Admit(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if nettest.Run(t, ns, "nft", "list", "tables") == "" {
		t.Error("the next sandbox is admitted without its table")
	}
	w.Attached(next.Attachment)
	if err := w.Release(t.Context(), old.Attachment); err != nil {
		t.Fatal(err)
	}
	if nettest.Run(t, ns, "nft", "list", "tables") == "" {
		t.Error("the table went with the first sandbox")
	}
	if err := w.Release(t.Context(), next.Attachment); err != nil {
		t.Fatal(err)
	}
}
