// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/nettest/forge"
	"github.com/weft-net/weft/internal/node/policy"
)

const guestsPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: guests}
spec:
  podSelector: {matchLabels: {app: guest}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
  egress: [{to: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 81}, {port: 4001, protocol: UDP}]}]
`

// bluePolicy isolates guests on the secondary network.
const bluePolicy = `
apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata: {namespace: shop, name: blue, annotations: {k8s.v1.cni.cncf.io/policy-for: blue}}
spec: {podSelector: {matchLabels: {app: guest}}, policyTypes: [Ingress, Egress]}
`

// labels are the app labels of the pods, in order of creation.
func labels() []string {
	return append([]string{"friend", "other"}, slices.Repeat([]string{"guest"}, len(sites()["flannel"].bindings))...)
}

// enforcer enforces the policies of a directory with one policy and all pods.
func enforcer(t *testing.T, host *kernel.Conn, text string) attach.PolicyEnforcer {
	t.Helper()
	path := t.TempDir()
	files := map[string]string{"policy": text, "namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"}
	for i, label := range labels() {
		name := fmt.Sprintf("pod%d", i+1)
		files[name] = fmt.Sprintf(
			"apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: %s, uid: u-%s, labels: {app: %s}}\nspec: {nodeName: n1, containers: [{name: c}]}\n",
			name,
			name,
			label,
		)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(path, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	e := policy.New(policy.Config{
		Node: "n1", Source: objects.Objects(), Objects: objects.Objects(), Host: host, Log: slog.New(slog.DiscardHandler),
		Now: time.Now, After: time.After,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return e
}

// TestPolicy: the policy of a VM's pod is enforced for its guest, by each binding, in both directions and families; no
// fragment, VLAN tag or option bypasses it.
func TestPolicy(t *testing.T) {
	all := sites()
	all["foreign-bridge"] = site{
		flannel,
		foreignBridge,
		[]model.VMBinding{model.VMMasquerade, model.VMBridge, model.VMDirect},
	}
	for name, by := range all {
		t.Run(name, func(t *testing.T) {
			by.needs(t, true)
			w := newEnforced(t, by, func(host *kernel.Conn) attach.PolicyEnforcer { return enforcer(t, host, guestsPolicy) },
				subnet4, subnet6)
			friend, other := w.pod(false, false), w.pod(false, false)
			for _, port := range []int{81, 82} {
				serve(t, friend.ns, port, "friend")
				serve(t, other.ns, port, "other")
			}
			for _, binding := range by.bindings {
				t.Run(string(binding), func(t *testing.T) {
					inner := *w
					inner.t = t
					p := inner.pod(false, true)
					g := inner.boot(p, testInput(binding))[0]
					inner.checkPolicy(p, g, friend, other)
					inner.checkEvasion(p, g, friend)
					w.n = inner.n
				})
			}
		})
	}
}

// TestMultiNetworkPolicy: a policy of a secondary network is enforced for the guest on it, and for nothing else.
func TestMultiNetworkPolicy(t *testing.T) {
	nettest.NeedBridgeNetfilter(t)
	w := newEnforced(
		t,
		sites()["flannel"],
		func(host *kernel.Conn) attach.PolicyEnforcer { return enforcer(t, host, bluePolicy) },
		subnet4,
	)
	friend, other := w.pod(true, false), w.pod(true, false)
	for i, p := range []*pod{friend, other} {
		serve(t, p.ns, 81, "pod")
		nettest.Run(t, p.ns, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", 101+i), "dev", blueLink)
	}
	otherAddr, to := netip.MustParseAddr("192.0.2.102"), netip.MustParseAddr("192.0.2.101")
	for i, binding := range []model.VMBinding{model.VMBridge, model.VMManagedTap, model.VMDirect} {
		t.Run(string(binding), func(t *testing.T) {
			inner := *w
			inner.t = t
			p := inner.pod(true, true)
			g := inner.boot(p, testInput(model.VMMasquerade, binding))
			own := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 1+i))
			serve(t, g[1].NS, 80, "second")
			g[1].ip(t, fmt.Sprintf("addr add %s/24 dev eth0", own))
			ping(t, other.ns, to) // pods that the policy does not select
			expectReply(t, friend.ns, otherAddr, 81, "pod "+to.String())
			expectReply(t, g[0].NS, friend.addrs[0].Addr(), 81, "pod "+p.addrs[0].Addr().String())
			if got := call(g[1].NS, to, 81, 150*time.Millisecond); got != "" {
				t.Errorf("the guest reaches a pod that it may not: %q", got)
			}
			if got := call(friend.ns, own, 80, 150*time.Millisecond); got != "" {
				t.Errorf("a pod that may not reaches the guest: %q", got)
			}
			w.n = inner.n
		})
	}
}

// checkPolicy connects a guest and two pods; the policy selects only the guest.
func (w *world) checkPolicy(p *pod, g guest, friend, other *pod) {
	t := w.t
	serve(t, g.NS, 80, "guest")
	const never = 150 * time.Millisecond
	for i, a := range p.addrs {
		to, denied := friend.addrs[i].Addr(), other.addrs[i].Addr()
		expectReply(t, g.NS, to, 81, "friend "+a.Addr().String())
		expectReply(t, friend.ns, a.Addr(), 80, "guest "+to.String())
		if got := call(g.NS, to, 82, never); got != "" {
			t.Errorf("the guest reaches a port that it may not: %q", got)
		}
		if got := call(g.NS, denied, 81, never); got != "" {
			t.Errorf("the guest reaches a pod that it may not: %q", got)
		}
		if got := call(other.ns, a.Addr(), 80, never); got != "" {
			t.Errorf("a pod that may not reaches the guest: %q", got)
		}
	}
}

// checkEvasion sends denied datagrams from the guest, in all forms that keep its own address.
func (w *world) checkEvasion(p *pod, g guest, friend *pod) {
	t := w.t
	s := w.stage(p, g, friend)
	var frames []forge.Attack
	for i := range s.Own {
		src, dst := netip.AddrPortFrom(s.Own[i], 4000), netip.AddrPortFrom(s.Peer[i], 4000)
		add := func(name string, make func(word []byte) []byte) {
			word := fmt.Appendf(nil, "EVIL-%02d-", len(frames))
			frames = append(frames, forge.Attack{Name: name, Frame: make(append(slices.Clip(word), "0123456789abcdef"...)), Word: word})
		}
		frame := func(body []byte) []byte { return forge.Ether(s.To, s.MAC, forge.KindOf(src.Addr()), body) }
		whole := func(word []byte) []byte { return forge.UDP(src, dst, word) }
		add("as it is", func(word []byte) []byte { return frame(forge.IP(src.Addr(), dst.Addr(), forge.ProtoUDP, whole(word))) })
		add("with a tag of priority", func(word []byte) []byte {
			return forge.Tagged(frame(forge.IP(src.Addr(), dst.Addr(), forge.ProtoUDP, whole(word))), forge.TypeVLAN, 0)
		})
		if i == 0 {
			add("the first fragment", func(word []byte) []byte {
				return frame(forge.IP(src.Addr(), dst.Addr(), forge.ProtoUDP, whole(word)[:24], 0x2000))
			})
			add("the second fragment", func(word []byte) []byte {
				return frame(forge.IP(src.Addr(), dst.Addr(), forge.ProtoUDP, whole(word)[24:], 3))
			})
			continue
		}
		add("behind an option", func(word []byte) []byte {
			return frame(
				forge.IP(src.Addr(), dst.Addr(), forge.ProtoDest, slices.Concat([]byte{forge.ProtoUDP, 0, 1, 4, 0, 0, 0, 0}, whole(word))),
			)
		})
		add("in one fragment", func(word []byte) []byte {
			return frame(
				forge.IP(src.Addr(), dst.Addr(), forge.ProtoFragment, slices.Concat([]byte{forge.ProtoUDP, 0, 0, 0, 0, 0, 0, 7}, whole(word))),
			)
		})
	}
	if got := w.throw(s, g, friend, frames); len(got) > 0 {
		t.Errorf("denied packets of the guest were delivered: %s", strings.Join(got, "; "))
	}
}
