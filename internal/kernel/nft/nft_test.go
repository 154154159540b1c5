// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

var _ = flag.Bool("update", false, "write the golden files")

func update() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func dial(t *testing.T, ns *netns.NS) *Conn {
	t.Helper()
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func apply(t *testing.T, c *Conn, tables ...state.Table) {
	t.Helper()
	if err := c.Apply(bounded(t), tables); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

func list(t *testing.T, ns *netns.NS, tbl state.Table) string {
	t.Helper()
	return nettest.Run(t, ns, "nft", "-s", "list", "table", tbl.Family, tbl.Name)
}

func gen(t *testing.T, ns *netns.NS) uint32 {
	t.Helper()
	c, err := Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	n, err := c.wire.generation()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestGolden: the text of a plan, the file, and nft's output after Apply by netlink are identical.
func TestGolden(t *testing.T) {
	for name, tbl := range map[string]state.Table{
		"masq": masq("10.1.0.2", "10.1.0.3"), "all": everything(), "ip": plainIP(), "filter": filter(), "arp": arpTable(),
	} {
		t.Run(name, func(t *testing.T) {
			text, err := lang.Text(tbl)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".nft")
			if update() {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(golden), text); d != "" {
				t.Errorf("the plan's text differs from %s (-file +plan):\n%s", file, d)
			}
			ns := nettest.NS(t, "n")
			c := dial(t, ns)
			apply(t, c, tbl)
			if d := cmp.Diff(string(golden), list(t, ns, tbl)); d != "" {
				t.Errorf("nft lists something else than %s (-file +nft):\n%s", file, d)
			}
			before := gen(t, ns)
			for _, again := range []*Conn{c, dial(t, ns)} {
				apply(t, again, tbl)
				if now := gen(t, ns); now != before {
					t.Errorf("a second Apply moved the ruleset from generation %d to %d: it wrote something", before, now)
				}
			}
			have, err := c.Read(bounded(t), []state.Table{tbl})
			if err != nil {
				t.Fatal(err)
			}
			if d := lang.Diff([]state.Table{tbl}, have); len(d) > 0 {
				t.Errorf("Read differs from what was applied: %v", d)
			}
		})
	}
}

// TestNftAgrees: our text, loaded by nft and read by netlink, is unchanged.
func TestNftAgrees(t *testing.T) {
	for _, tbl := range []state.Table{masq("10.1.0.2"), everything(), plainIP(), filter(), arpTable()} {
		text, err := lang.Text(tbl)
		if err != nil {
			t.Fatal(err)
		}
		ns := nettest.NS(t, "n")
		file := filepath.Join(t.TempDir(), "in.nft")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		nettest.Run(t, ns, "nft", "-f", file)
		before := gen(t, ns)
		tbl.Shared = false
		apply(t, dial(t, ns), tbl)
		if now := gen(t, ns); now != before {
			have, _ := dial(t, ns).Read(bounded(t), []state.Table{tbl})
			t.Errorf("Apply changed what nft had made of the same text: %v", lang.Diff([]state.Table{tbl}, have))
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"ip saddr 10.0.0.300 accept":        `"10.0.0.300" is no ipv4_addr`,
		"ip saddr @nosuch return":           `no set "nosuch"`,
		"ip saddr @masq6 return":            "the key is ipv4_addr, the set holds ipv6_addr",
		"ip6 saddr @masq4 return":           "the key is ipv6_addr, the set holds ipv4_addr",
		"ip saddr frobnicate":               `"frobnicate" is no ipv4_addr`,
		"frobnicate":                        `word 1, "frobnicate" is no field or statement`,
		"jump nowhere":                      `no chain "nowhere"`,
		"tcp dport { 80, 443 } accept":      "lists are not understood; use a set",
		"tcp dport 80,443 accept":           "lists are not understood; use a set",
		"ip saddr 10.0.0.0/33 accept":       "is no prefix",
		"tcp dport 90-80 accept":            "ends before it begins",
		"ct state bogus accept":             `"bogus" is no ct_state`,
		"dnat to 1.2.3.4":                   "want ip or ip6",
		"dnat ip to 1.2.3.4:80":             "needs a match of the transport protocol",
		"ip saddr 1.1.1.1 ip6 saddr ::1":    "the packet is of the other family",
		"tcp dport 1 udp dport 2 accept":    "the packet is of another protocol",
		"ip saddr . ip daddr 1.1.1.1":       "only compared with @set",
		"ip saddr":                          "want a value",
		"":                                  "rule is empty",
		"masquerade random,bogus":           `"bogus"`,
		"fwd to 1":                          "fwd is for tables of family netdev",
		`iifname "a-name-that-is-too-long"`: "no interface name",
	} {
		tbl := masq()
		tbl.Chains[0].Rules = []state.NftRule{{Text: text}}
		err := lang.Validate([]state.Table{tbl})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rule %q: error %v, want one that says %q", text, err, want)
		}
	}
}

// Stateful elements and rules that mark packets are read back as written; an element whose statement changes is
// re-created.
func TestKeeping(t *testing.T) {
	ns := nettest.NS(t, "n")
	c := dial(t, ns)
	tbl := statefulTable()
	apply(t, c, tbl)
	before := gen(t, ns)
	apply(t, dial(t, ns), tbl)
	if now := gen(t, ns); now != before {
		t.Errorf("a second Apply wrote something: generation %d, then %d", before, now)
	}
	have, err := c.Read(bounded(t), []state.Table{tbl})
	if err != nil {
		t.Fatal(err)
	}
	if d := lang.Diff([]state.Table{tbl}, have); len(d) > 0 {
		t.Errorf("Read differs from what was applied: %v", d)
	}
	out := list(t, ns, tbl)
	for _, want := range []string{
		`"eth0" limit rate over 100/second burst 7 packets comment "a"`, "ip dscp set ef", "ip6 dscp set ef",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing in\n%s", want, out)
		}
	}
	tbl.Sets[0].Elements[1].Stateful = "limit rate over 10/second"
	if d := lang.Diff([]state.Table{tbl}, have); len(d) != 1 {
		t.Errorf("a changed limit: %v", d)
	}
	apply(t, c, tbl)
	if out := list(t, ns, tbl); !strings.Contains(out, `"eth1" limit rate over 10/second`) {
		t.Errorf("the limit is not changed:\n%s", out)
	}
	for text, want := range map[string]string{
		"counter": "an element keeps a limit or a ct count", "limit rate over 1/second drop": "one statement is enough",
		"ct count over x": "want a number of connections",
	} {
		bad := statefulTable()
		bad.Sets[0].Elements[0].Stateful = text
		if _, err := lang.Text(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
