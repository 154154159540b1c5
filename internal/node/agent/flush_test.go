// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestReleasedAddressIsForgotten: after the cooldown of an address, conntrack has no connection of its last owner;
// connections of other addresses stay.
func TestReleasedAddressIsForgotten(t *testing.T) {
	nettest.EndToEnd(t)
	store := t.TempDir() + "/store"
	if err := os.Mkdir(store, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\nspec:\n  regions: [{cidr: 10.9.0.0/24, blockSize: 26}]\n  cooldownSeconds: 1\n"
	if err := os.WriteFile(store+"/pool.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.args = []string{"--store-dir", store}
	w.start()
	nettest.Run(t, w.node, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=600") // or entries end while this looks
	nettest.Run(
		t, w.node, "nft",
		"add table ip t; add chain ip t c { type filter hook output priority 0; }; add rule ip t c ct state established accept",
	)
	const conf = `{"type":"ptp","ipam":{"type":"weft","pool":"p","gateway":"10.9.0.254"}}`
	r, err := w.add(w.list("1.0.0", conf), "c1", nettest.NS(t, "pod"))
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log())
	}
	pod, own := netip.MustParseAddr(r.IPs[0].Address.IP.String()), netip.MustParseAddr("127.0.0.1")
	for _, to := range []netip.Addr{pod, own} {
		err := w.node.Do(func() error {
			c, err := net.Dial("udp", netip.AddrPortFrom(to, 9).String())
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_, err = c.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	host, err := kernel.Dial(w.node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	tracked := func(to netip.Addr) bool {
		t.Helper()
		is := false
		_, err := host.FlushConntrack(func(c state.Connection) bool {
			is = is || c.Dst.Addr() == to
			return false
		})
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	if !tracked(pod) || !tracked(own) {
		t.Fatal("the connections are not tracked, though a rule asks for their state")
	}
	if err := w.del(w.list("1.0.0", conf), "c1", nettest.NS(t, "gone")); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); tracked(pod); time.Sleep(50 * time.Millisecond) {
		// by itself it would stay for ten minutes
		if time.Now().After(limit) {
			t.Fatalf("the connection to %s is still tracked\n%s", pod, w.log())
		}
	}
	if !tracked(own) {
		t.Error("a connection of another address is forgotten, too")
	}
	w.stop()
}
