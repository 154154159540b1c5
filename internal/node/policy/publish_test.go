// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/node/policy"
)

// said returns the interfaces that the node has published.
func (w *world) said() string {
	o, err := w.store.Get(store.NodeEndpoints().Key("", "n1"))
	if err != nil {
		return "nothing"
	}
	all, err := o.NodeEndpoints()
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprintf("%s %s %s%s %v", e.Pod, e.Pod.UID, e.Network, e.IfName, e.Addrs))
	}
	return strings.Join(out, "; ")
}

// TestPublish: a node publishes its pods' addresses once their ADD is done and there is a policy, and only as long as
// they exist.
func TestPublish(t *testing.T) {
	w := newWorld(t)
	w.start()
	web := w.pod("shop/web", "app: web")
	if said := w.said(); said != "nothing" {
		t.Errorf("without a policy the node says %s", said)
	}
	w.manifest("friends", onlyFriends)
	w.eventually("what is there is published", func() bool { return w.said() == "shop/web uid-web eth0 [10.9.0.2]" })
	w.object("shop/late", "app: late", "n1")
	late := w.guarded("shop/late")
	if err := w.Admit(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	w.pod("shop/other", "app: other")
	w.eventually("the next pod is published, and not the one whose ADD is not done", func() bool {
		return w.said() == "shop/other uid-other eth0 [10.9.0.3]; shop/web uid-web eth0 [10.9.0.2]"
	})
	// Another program writes the object: the next change repairs it.
	w.manifest("nodeendpoints-n1", "apiVersion: weft.dev/v1alpha1\nkind: NodeEndpoints\nmetadata: {name: n1}\nspec: {}\n")
	if err := w.Release(t.Context(), web.Attachment); err != nil {
		t.Fatal(err)
	}
	w.eventually("a pod that is gone is not published", func() bool {
		return w.said() == "shop/other uid-other eth0 [10.9.0.3]"
	})
}

// refusing is a datastore that refuses the first writes.
type refusing struct {
	store.Objects
	left atomic.Int32
}

func (r *refusing) Create(ctx context.Context, kind store.Kind, o store.Object) (store.Object, error) {
	if r.left.Add(-1) >= 0 {
		return store.Object{}, errors.New("not now")
	}
	return r.Objects.Create(ctx, kind, o)
}

func (r *refusing) CompareAndSwap(
	ctx context.Context, kind store.Kind, version string, next store.Object,
) (store.Object, error) {
	if r.left.Add(-1) >= 0 {
		return store.Object{}, errors.New("not now")
	}
	return r.Objects.CompareAndSwap(ctx, kind, version, next)
}

// TestPublishAgain: a failed publication is retried, even without further changes.
func TestPublishAgain(t *testing.T) {
	w := newWorld(t)
	w.manifest("friends", onlyFriends)
	objects := &refusing{Objects: w.store.Objects()}
	objects.left.Store(2)
	w.start(func(c *policy.Config) { c.Objects = objects })
	web := w.pod("shop/web", "app: web")
	w.eventually("it is published at last", func() bool { return w.said() == "shop/web uid-web eth0 [10.9.0.2]" })
	if left := objects.left.Load(); left >= 0 {
		t.Errorf("it was published before the store took it: %d writes are to be refused yet", left)
	}
	objects.left.Store(2)
	w.pod("shop/other", "app: other")
	w.eventually("what changed is published, too", func() bool {
		return w.said() == "shop/other uid-other eth0 [10.9.0.3]; shop/web uid-web eth0 [10.9.0.2]"
	})
	if !w.logged("addresses of pods could not be published", "not now") {
		t.Error("nobody was told that addresses were not published")
	}
	if err := w.Release(t.Context(), web.Attachment); err != nil {
		t.Fatal(err)
	}
	w.eventually("a pod that is gone is not published", func() bool {
		return w.said() == "shop/other uid-other eth0 [10.9.0.3]"
	})
}

// TestPublishedByOthers: the interfaces published by another node take effect immediately, for the pod of that UID,
// before a kubelet reports the address; and end when they are removed.
func TestPublishedByOthers(t *testing.T) {
	w := newWorld(t)
	w.manifest("friends", onlyFriends)
	w.start()
	w.pod("shop/web", "app: web")
	w.object("shop/far", `friend: "yes"`, "n2")
	publish := func(uid, addr string) {
		w.manifest("endpoints-n2", fmt.Sprintf(`
apiVersion: weft.dev/v1alpha1
kind: NodeEndpoints
metadata: {name: n2}
spec: {endpoints: [{namespace: shop, pod: far, uid: %s, interface: eth0, addresses: [%s]}]}
`, uid, addr))
	}
	has := func(addr string) func() bool {
		return func() bool {
			for line := range strings.Lines(ruleset()) {
				if strings.Contains(line, "elements = {") && strings.Contains(line, addr) ||
					strings.HasPrefix(strings.TrimSpace(line), addr) {
					return true
				}
			}
			return false
		}
	}
	publish("uid-far", "10.77.0.9")
	w.eventually("the address counts", has("10.77.0.9"))
	publish("uid-far", "10.77.0.10")
	w.eventually("the next address counts", has("10.77.0.10"))
	if has("10.77.0.9")() {
		t.Error("the old address still counts")
	}
	publish("uid-of-another-life", "10.77.0.11")
	w.eventually("the address of another pod of that name does not count", func() bool {
		return !has("10.77.0.10")() && !has("10.77.0.11")()
	})
	w.object("shop/far", `friend: "yes"`, "n2", "10.77.0.12")
	w.eventually("the address that the kubelet reports counts", has("10.77.0.12"))
}

// TestFaultyPolicies: an unsupported policy does not affect others, denies all in the pods that it selects, and is
// reported.
func TestFaultyPolicies(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`)
	w.serve(web, 80)
	w.manifest("bad", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: bad}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]
`)
	w.eventually("the policy is told about", func() bool {
		return strings.Contains(w.log.String(), "policy has unsupported parts")
	})
	w.eventually("it allows nothing", func() bool { return !reaches(friend.ns, web, 80) })
	w.manifest("friends", onlyFriends)
	w.eventually("another policy counts", func() bool { return reaches(friend.ns, web, 80) })
	if s := w.Stats(); s.Policies != 2 || s.Faulty != 1 || s.Interfaces != 2 || s.Transactions == 0 {
		t.Errorf("%+v", s)
	}
}
