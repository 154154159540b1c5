// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/policy"
)

const denyAll = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: none}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
`

// flood sends datagrams from a namespace to a pod until stop is called, and counts those that arrive.
func flood(t *testing.T, from, to *pod) (arrived func() int, stop func()) {
	t.Helper()
	var in *net.UDPConn
	if err := to.ns.Do(func() (err error) {
		in, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 4000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	count := make(chan int, 1)
	count <- 0
	go func() {
		buf := make([]byte, 64)
		for {
			if _, err := in.Read(buf); err != nil {
				return
			}
			count <- <-count + 1
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			var out *net.UDPConn // a new one each time, because an established connection stays allowed
			_ = from.ns.Do(func() (err error) {
				out, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.addr, 4000)))
				return err
			})
			if out != nil {
				_, _ = out.Write([]byte("x"))
				_ = out.Close()
			}
		}
	}()
	return func() int { n := <-count; count <- n; return n }, func() { cancel(); <-done; _ = in.Close() }
}

// TestNeverOpen: a selected pod is never open: not when its agent ends, starts, starts without a datastore, has not
// synced yet, nor after another program flushed the rules and they were restored.
func TestNeverOpen(t *testing.T) {
	w := newWorld(t)
	w.manifest("none", denyAll)
	w.start()
	a, b := w.pod("shop/a", "app: a"), w.pod("shop/b", "app: b")
	arrived, stop := flood(t, a, b)
	defer stop()
	for range 3 {
		w.start() // ends the previous one
		c := w.pod("shop/c"+string(rune('0'+len(w.pods))), "app: c")
		if reaches(c.ns, b, 80) {
			t.Error("a new pod is open")
		}
	}
	w.halt()
	w.start(func(c *policy.Config) { c.Source = silent{} })
	if err := w.Release(t.Context(), a.Attachment); err != nil { // while policies are not synced
		t.Error(err)
	}
	if n := arrived(); n > 0 {
		t.Errorf("%d packets arrived", n)
	}
	// They would have arrived without the policy.
	w.start()
	w.remove("none")
	w.eventually("packets arrive without the policy", func() bool { return arrived() > 0 })
}

// silent is a datastore without events and without a sync, like an unreachable API server.
type silent struct{}

func (silent) Watch(ctx context.Context, _ ...store.Kind) (<-chan store.Event, error) {
	c := make(chan store.Event)
	go func() { <-ctx.Done(); close(c) }()
	return c, nil
}

func wantTryAgain(t *testing.T, err error, words string) {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain || !strings.Contains(err.Error(), words) || f.Hint == "" {
		t.Errorf("want code 11 with %q, got %v", words, err)
	}
}

// TestUnknown: an ADD is refused while policies, or the pod's labels, are not known.
func TestUnknown(t *testing.T) {
	w := newWorld(t)
	w.manifest("none", denyAll)
	soon := func(c *policy.Config) {
		c.After = func(d time.Duration) <-chan time.Time { return time.After(min(d, 200*time.Millisecond)) }
	}
	w.start(soon, func(c *policy.Config) { c.Source = silent{} })
	g := w.guarded("shop/a")
	wantTryAgain(t, w.Admit(t.Context(), g), "network policies are not known yet")
	w.start(soon)
	w.eventually("policies are known", w.Known)
	wantTryAgain(t, w.Admit(t.Context(), g), "pod shop/a is not known yet")
	w.object("shop/a", "app: a", "n1")
	w.eventually("a pod that is known is admitted", func() bool { return w.Admit(t.Context(), g) == nil })
	other := g
	other.Pod.UID = "another"
	wantTryAgain(t, w.Admit(t.Context(), other), "pod shop/a is not known yet")
	// No policy selects pods of this namespace.
	if err := w.Admit(t.Context(), w.guarded("bank/b")); err != nil {
		t.Error(err)
	}
	// The ADD waits for a pod that is created meanwhile.
	late := w.guarded("shop/late")
	done := make(chan error, 1)
	w.start()
	go func() { done <- w.Admit(t.Context(), late) }()
	w.object("shop/late", "app: late", "n1")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestExternalChanges: any external change of the table is repaired.
func TestExternalChanges(t *testing.T) {
	w := newWorld(t)
	w.manifest("none", denyAll)
	w.start()
	w.pod("shop/a", "app: a")
	want := ruleset()
	for _, deed := range []string{
		"flush ruleset", "delete table inet weft-policy", "flush chain inet weft-policy ingress",
		"insert rule inet weft-policy ingress accept", `delete element inet weft-policy ingress { "calia" }`,
	} {
		nettest.Run(t, nil, "nft", deed)
		w.eventually("repaired after "+deed, func() bool { return sortedLines(ruleset()) == sortedLines(want) })
	}
}

func sortedLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	// A re-created object may be at another position.
	for i := range lines {
		for j := i + 1; j < len(lines); j++ {
			if lines[j] < lines[i] {
				lines[i], lines[j] = lines[j], lines[i]
			}
		}
	}
	return strings.Join(lines, "\n")
}

// TestStoreAway: a datastore that cannot be read when the agent starts is read later; then its policies are enforced.
func TestStoreAway(t *testing.T) {
	w := newWorld(t)
	w.manifest("none", denyAll)
	away := w.dir + ".away"
	if err := os.Rename(w.dir, away); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.eventually("the store is missed", func() bool { return strings.Contains(w.log.String(), "policies could not be read") })
	if err := os.Rename(away, w.dir); err != nil {
		t.Fatal(err)
	}
	w.eventually("the policies are known", w.Known) // an ADD waits for them 3 s
	a, b := w.pod("shop/a", "app: a"), w.pod("bank/b", "app: b")
	w.serve(a, 80)
	if reaches(b.ns, a, 80) {
		t.Error("the policy does not hold")
	}
}
