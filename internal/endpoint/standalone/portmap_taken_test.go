// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// twins are two containers on a bridge, until gone is called.
func twins(t *testing.T, h *host) (ns [2]*netns.NS, prev [2]string, gone func()) {
	t.Helper()
	bridge := mainPlugins()["bridge"]
	for i := range ns {
		ns[i] = nettest.NS(t, fmt.Sprint("twin", i))
		id := fmt.Sprint("CNI_CONTAINERID=c", i)
		prev[i] = h.must("bridge", "ADD", bridge, ns[i], id).stdout
	}
	return ns, prev, func() {
		for i := range ns {
			h.must("bridge", "DEL", bridge, ns[i], fmt.Sprint("CNI_CONTAINERID=c", i))
		}
	}
}

// records returns the records of attachments.
func records(t *testing.T, h *host) []string {
	t.Helper()
	found, err := filepath.Glob(h.journal + "/*/*/*.json")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func onPort(hostPort int, hostIP string) string {
	return fmt.Sprintf(`{"hostPort":%d,"containerPort":80,"protocol":"tcp","hostIP":%q}`, hostPort, hostIP)
}

// A port that another container uses is rejected; nothing of that container is changed, and nothing is left of the
// second.
func TestPortmapTaken(t *testing.T) {
	h := newHost(t)
	flushed(t)
	ns, prev, gone := twins(t, h)
	defer gone()
	for _, c := range []struct{ first, second, want string }{
		{onPort(8080, ""), onPort(8080, ""), `hostPort 8080/tcp is taken by attachment n/c0/eth0`},
		{onPort(8080, ""), onPort(8080, "0.0.0.0"), `hostPort 8080/tcp is taken by attachment n/c0/eth0`},
		{
			onPort(8080, "192.0.2.1"), onPort(8080, ""),
			`hostPort 8080/tcp is taken by attachment n/c0/eth0, as 8080/tcp at 192.0.2.1`,
		},
		{
			onPort(8080, "::"), onPort(8080, "2001:db8::1"),
			`hostPort 8080/tcp at 2001:db8::1 is taken by attachment n/c0/eth0, as 8080/tcp`,
		},
		{onPort(8080, "0.0.0.0"), onPort(8080, "::"), ``},
		{onPort(8080, "192.0.2.1"), onPort(8080, "192.0.2.2"), ``},
	} {
		for _, options := range [][2]string{{"", ""}, {"", `,"markMasqBit":3`}} {
			first, second := mapped(prev[0], options[0], c.first), mapped(prev[1], options[1], onPort(7070, "")+","+c.second)
			h.must("portmap", "ADD", first, ns[0], "CNI_CONTAINERID=c0")
			before := nettest.Run(t, nil, "nft", "list", "table", "inet", "weft_hostports")
			a := h.call("portmap", "ADD", second, ns[1], "CNI_CONTAINERID=c1")
			if c.want == "" && a.exit != 0 || c.want != "" &&
				(a.code() != 104 || !strings.Contains(a.stdout, c.want+`"`) && !strings.Contains(a.stdout, c.want+" (")) {
				t.Errorf("%s beside %s%s: %s", c.second, c.first, options[1], a.stdout)
			}
			after := nettest.Run(t, nil, "nft", "list", "table", "inet", "weft_hostports")
			if d := cmp.Diff(before, after); c.want != "" && options[1] == "" && d != "" {
				t.Errorf("%s beside %s changed (-before +after)\n%s", c.second, c.first, d)
			}
			h.must("portmap", "CHECK", first, ns[0], "CNI_CONTAINERID=c0")
			if left := records(t, h); c.want != "" && len(left) != 3 { // the bridge's, and the first one's
				t.Errorf("records: %v", left)
			}
			h.must("portmap", "DEL", second, ns[1], "CNI_CONTAINERID=c1")
			h.must("portmap", "CHECK", first, ns[0], "CNI_CONTAINERID=c0")
			h.must("portmap", "DEL", first, ns[0], "CNI_CONTAINERID=c0")
			h.must("portmap", "ADD", second, ns[1], "CNI_CONTAINERID=c1")
			h.must("portmap", "DEL", second, ns[1], "CNI_CONTAINERID=c1")
		}
	}
}

// An invalid condition is rejected, and nothing is left.
func TestPortmapConditionRefused(t *testing.T) {
	h := newHost(t)
	flushed(t)
	ns, prev, gone := twins(t, h)
	defer gone()
	for condition, want := range map[string]string{
		"ip saddr 10.0.0.0/8 frobnicate": `is no field or statement that is understood`,
		"tcp dport { 80, 81 }":           `lists are not understood; use a set`,
		"ip6 saddr fd00::/8":             `the packet is of the other family`,
	} {
		a := h.call("portmap", "ADD", mapped(prev[0], fmt.Sprintf(`,"conditionsV4":[%q]`, condition), onPort(8080, "")),
			ns[0], "CNI_CONTAINERID=c0")
		if a.code() != 7 || !strings.Contains(a.stdout, want) ||
			!strings.Contains(a.stdout, `plugin portmap: conditions: rule`) {
			t.Errorf("%s: %s", condition, a.stdout)
		}
		wantRules(t, condition, "8080", false)
		if left := records(t, h); len(left) != 2 { // the bridge's
			t.Errorf("records: %v", left)
		}
	}
}

// CHECK names what is missing or points elsewhere; DEL and ADD repair it.
func TestPortmapCheck(t *testing.T) {
	h := newHost(t)
	flushed(t)
	ns, prev, gone := twins(t, h)
	defer gone()
	ports := mapped(prev[0], "", onPort(8080, "")+","+onPort(8081, "192.0.2.1"))
	for change, want := range map[string]string{
		"nft delete element inet weft_hostports ports4 { tcp . 8080 }":                "tcp . 8080",
		"nft delete element inet weft_hostports ports4_at { 192.0.2.1 . tcp . 8081 }": "192.0.2.1 . tcp . 8081",
		"nft delete element inet weft_hostports self4 { 10.6.0.2 . 10.6.0.2 }":        "set self4 element",
		`nft delete element inet weft_hostports hairpin6 { "sbr0" . fd00:6::2 }`:      "set hairpin6 element",
		"nft flush chain inet weft_hostports output":                                  "chain output rule 1",
		"nft insert rule inet weft_hostports hostports drop":                          "drop",
		"nft delete table inet weft_hostports":                                        "nft table inet weft_hostports",
		"sysctl -qw net.ipv4.conf.sbr0.route_localnet=0":                              "route_localnet = 1",
		"bridge link set dev " + hostEnd(t, prev[0]) +
			" hairpin off": "hairpin on",
		"nft delete element inet weft_hostports ports4 { tcp . 8080 } ; add element inet weft_hostports ports4 { tcp . 8080 : 10.6.0.9 . 80 }": "10.6.0.9 . 80",
	} {
		h.must("portmap", "ADD", ports, ns[0], "CNI_CONTAINERID=c0")
		h.must("portmap", "CHECK", ports, ns[0], "CNI_CONTAINERID=c0")
		for one := range strings.SplitSeq(strings.TrimPrefix(change, "nft "), " ; ") {
			if strings.HasPrefix(change, "nft ") {
				nettest.Run(t, nil, "nft", one)
			} else {
				nettest.Run(t, nil, strings.Fields(one)...)
			}
		}
		if a := h.call("portmap", "CHECK", ports, ns[0], "CNI_CONTAINERID=c0"); a.code() != 102 ||
			!strings.Contains(a.stdout, want) {
			t.Errorf("CHECK after %q: %s", change, a.stdout)
		}
		h.must("portmap", "DEL", ports, ns[0], "CNI_CONTAINERID=c0")
		nettest.Run(t, nil, "nft", "flush", "ruleset") // an element of another owner stays, as it should
	}
}

// Datagrams follow a new mapping immediately, and those to a deleted container are dropped: conntrack keeps an entry as
// long as datagrams arrive.
func TestPortmapForgetsConnections(t *testing.T) {
	if _, err := exec.LookPath("conntrack"); err != nil {
		nettest.SkipMissing(t, "no conntrack program")
	}
	h := newHost(t)
	flushed(t)
	ns, prev, gone := twins(t, h)
	defer gone()
	const udp = `{"hostPort":5353,"containerPort":53,"protocol":"udp"}`
	first, second := mapped(prev[0], "", udp), mapped(prev[1], "", udp)
	track := func(to string) {
		t.Helper()
		nettest.Run(t, nil,
			strings.Fields("conntrack -I -p udp -s 198.51.100.1 -d 192.0.2.1 --sport 1000 --dport 5353 --timeout 100 "+to)...)
		nettest.Run(
			t, nil,
			strings.Fields(
				"conntrack -I -p tcp -s 198.51.100.1 -d 192.0.2.1 --sport 1000 --dport 5353 --timeout 100 --state ESTABLISHED "+to,
			)...,
		)
	}
	list := func() string { return nettest.Run(t, nil, "conntrack", "-L", "-s", "198.51.100.1") }
	track("")
	h.must("portmap", "ADD", first, ns[0], "CNI_CONTAINERID=c0")
	if left := list(); strings.Contains(left, "udp") || !strings.Contains(left, "tcp") {
		t.Errorf("after ADD: %s", left)
	}
	nettest.Run(t, nil, "conntrack", "-F")
	track("--dst-nat " + addressOf(t, prev[0]) + ":53")
	h.must("portmap", "DEL", first, ns[0], "CNI_CONTAINERID=c0")
	if left := list(); strings.Contains(left, "=") {
		t.Errorf("after DEL: %s", left)
	}
	track("--dst-nat " + addressOf(t, prev[1]) + ":53") // another program's
	h.must("portmap", "ADD", mapped(prev[0], "", onPort(5353, "")), ns[0], "CNI_CONTAINERID=c0")
	h.must("portmap", "DEL", mapped(prev[0], "", onPort(5353, "")), ns[0], "CNI_CONTAINERID=c0")
	if left := list(); !strings.Contains(left, "udp") || !strings.Contains(left, "tcp") {
		t.Errorf("after DEL of another: %s", left)
	}
	nettest.Run(t, nil, "conntrack", "-F")
	h.must("portmap", "ADD", second, ns[1], "CNI_CONTAINERID=c1")
	h.must("portmap", "DEL", second, ns[1], "CNI_CONTAINERID=c1")
}

// TestPortmapOptions checks the effect of each option on packets.
func TestPortmapOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options            string
		backend            bool
		world, other       string // source address that the container sees of the world, via its first and its other address
		loopback, neighbor bool
	}{
		"plain":                  {"", true, "192.0.2.2", "192.0.2.3", true, true},
		"masqAll":                {`,"masqAll":true`, true, "10.6.0.1", "10.6.0.1", true, true},
		"bit":                    {`,"markMasqBit":27`, true, "192.0.2.2", "192.0.2.3", true, true},
		"no snat":                {`,"snat":false`, true, "192.0.2.2", "192.0.2.3", false, true},
		"conditions":             {`,"conditionsV4":["ip saddr 192.0.2.2"]`, false, "192.0.2.2", "", false, false},
		"conditions, not":        {`,"conditionsV4":["ip saddr != 192.0.2.2"]`, false, "", "192.0.2.3", true, true},
		"conditions of iptables": {`,"conditionsV4":["-s","192.0.2.2"]`, false, "192.0.2.2", "", false, false},
	} {
		for _, backend := range []string{"nftables", "iptables"} {
			if !c.backend && backend == "iptables" {
				continue
			}
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := newHost(t)
				flushed(t)
				outside := beyond(t)
				nettest.Run(t, outside, "ip", "addr", "add", "192.0.2.3/24", "dev", "wire0")
				ns, prev, gone := twins(t, h)
				defer gone()
				serve(t, ns[0], "tcp", 80)
				options := c.options
				if c.backend {
					options += `,"backend":"` + backend + `"`
				}
				ports := mapped(prev[0], options, onPort(8080, ""))
				h.must("portmap", "ADD", ports, ns[0], "CNI_CONTAINERID=c0")
				h.must("portmap", "CHECK", ports, ns[0], "CNI_CONTAINERID=c0")
				if got := answered(outside, "tcp", "192.0.2.1:8080", c.world != ""); got != c.world {
					t.Errorf("the world is seen as %q, want %q", got, c.world)
				}
				nettest.Run(t, outside, "ip", "route", "replace", "192.0.2.0/24", "dev", "wire0", "src", "192.0.2.3")
				if got := answered(outside, "tcp", "192.0.2.1:8080", c.other != ""); got != c.other {
					t.Errorf("the world is seen as %q, want %q", got, c.other)
				}
				if got := answered(nil, "tcp", "127.0.0.1:8080", c.loopback) != ""; got != c.loopback {
					t.Errorf("127.0.0.1 answers: %t", got)
				}
				if got := answered(ns[1], "tcp", "192.0.2.1:8080", c.neighbor) != ""; got != c.neighbor {
					t.Errorf("the neighbor is answered: %t", got)
				}
				own := c.loopback && c.neighbor
				if got := answered(ns[0], "tcp", "192.0.2.1:8080", own) != ""; got != own {
					t.Errorf("the container is answered by itself: %t", got)
				}
				h.must("portmap", "DEL", ports, ns[0], "CNI_CONTAINERID=c0")
				if got := seen(outside, "tcp", "192.0.2.1:8080"); got != "" {
					t.Error("open after DEL")
				}
			})
		}
	}
}
