// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// chains returns the lines of both families' nat tables, sorted: nft lists chains in the order of their creation.
func chains(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.SplitSeq(nettest.Run(t, nil, program, "-t", "nat"), "\n") {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, ":CNI") {
				out = append(out, program+" "+line)
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestMasqueradeChainsAreTheReferences: the same container and addresses yield the same lines of iptables-save, and
// each program's DEL removes the other's rules.
func TestMasqueradeChainsAreTheReferences(t *testing.T) {
	bin := peerBin(t)
	for name, c := range map[string]struct{ typ, conf string }{
		"bridge": {"bridge", dualMasq + `,"ipMasqBackend":"iptables"`},
		"ptp": {
			"ptp", strings.Replace(dualMasq, `"bridge":"sbr0","isGateway":true,`, "", 1) + `,"ipMasqBackend":"iptables"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			flushed(t)
			conf := conf("1.0.0", c.typ, c.conf)
			add := func(f func(h *host, ns *netns.NS) string) []string {
				h := newHost(t) // with addresses from the beginning
				ns := nettest.NS(t, "c1")
				prev := strings.Replace(conf, "{", `{"prevResult":`+f(h, ns)+`,`, 1)
				have := chains(t)
				h.must(c.typ, "CHECK", prev, ns)
				h.peer(bin, c.typ, "CHECK", prev, ns)
				if len(have) != 8 {
					t.Errorf("%d lines:\n%s", len(have), strings.Join(have, "\n"))
				}
				return have
			}
			var peersHost, ourHost *host
			var peersNS, ourNS *netns.NS
			want := add(func(h *host, ns *netns.NS) string {
				peersHost, peersNS = h, ns
				return h.peer(bin, c.typ, "ADD", conf, ns)
			})
			peersHost.must(c.typ, "DEL", conf, peersNS)
			if left := chains(t); len(left) > 0 {
				t.Errorf("weft's DEL of the peer's ADD leaves\n%s", strings.Join(left, "\n"))
			}
			have := add(func(h *host, ns *netns.NS) string {
				ourHost, ourNS = h, ns
				return h.must(c.typ, "ADD", conf, ns).stdout
			})
			if d := cmp.Diff(want, have); d != "" {
				t.Errorf("weft's chains (-peer's +weft's):\n%s", d)
			}
			ourHost.peer(bin, c.typ, "DEL", conf, ourNS)
			if left := chains(t); len(left) > 0 {
				t.Errorf("the peer's DEL of weft's ADD leaves\n%s", strings.Join(left, "\n"))
			}
			ourHost.must(c.typ, "DEL", conf, ourNS)
		})
	}
}

// TestMasqueradeIsChecked: CHECK reports a flushed chain, in iptables syntax.
func TestMasqueradeIsChecked(t *testing.T) {
	h := newHost(t)
	if out, err := nettest.Try(nil, "iptables", "-t", "nat", "-L"); err != nil {
		nettest.SkipMissing(t, "iptables does not work here: "+out)
	}
	flushed(t)
	ns := nettest.NS(t, "c1")
	conf := conf("1.0.0", "ptp", `,"ipMasq":true,"ipMasqBackend":"iptables"`+hostLocal)
	prev := strings.Replace(conf, "{", `{"prevResult":`+h.must("ptp", "ADD", conf, ns).stdout+`,`, 1)
	h.must("ptp", "CHECK", prev, ns)
	nettest.Run(t, nil, "iptables", "-t", "nat", "-F", "POSTROUTING")
	if a := h.call("ptp", "CHECK", prev, ns); a.exit == 0 ||
		!strings.Contains(a.stdout, "host: missing iptables -t nat -A POSTROUTING -s 10.6.0.2/32") {
		t.Errorf("CHECK: %+v", a)
	}
	h.must("ptp", "DEL", conf, ns)
	wantRules(t, "after DEL", "CNI-", false)
}

// hide covers a directory with an empty one until the end of the test.
func hide(t *testing.T, dir string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	if err := syscall.Mount("none", real, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(real, syscall.MNT_DETACH) })
}

// TestWithoutIPTables: on a node without the program ADD fails before anything is changed, and STATUS reports it.
func TestWithoutIPTables(t *testing.T) {
	h := newHost(t)
	t.Setenv("PATH", t.TempDir())
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} { // where it is looked for besides
		hide(t, dir)
	}
	ns := nettest.NS(t, "c1")
	for _, typ := range []string{"bridge", "ptp"} {
		conf := conf("1.1.0", typ, `,"ipMasq":true,"ipMasqBackend":"iptables"`+hostLocal)
		says := `plugin ` + typ +
			`: ipMasqBackend \"iptables\" needs the program iptables-restore, which is not on this node`
		if a := h.call(typ, "ADD", conf, ns); a.code() != 7 || !strings.Contains(a.stdout, says) {
			t.Errorf("%s ADD: %+v", typ, a)
		}
		if a := h.call(typ, "STATUS", conf, nil); a.code() != 50 || !strings.Contains(a.stdout, says) {
			t.Errorf("%s STATUS: %+v", typ, a)
		}
		h.must(typ, "STATUS", strings.Replace(conf, `"iptables"`, `"nftables"`, 1), nil)
	}
}
