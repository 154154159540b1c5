// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	tunedOptions = `,"dataDir":"DATA/tuning","mac":"02:00:00:00:00:77","mtu":1400,"promisc":true,"allmulti":true,"txQLen":55,
		"sysctl":{"net.core.somaxconn":"500","net.ipv4.conf.IFNAME.arp_filter":"1","net.ipv4.ip_local_port_range":"2000 60000"}`
	backupFile = `{
 "mac": "MAC",
 "promisc": false,
 "mtu": 1500,
 "allmulti": false,
 "txQLen": 1000
}`
)

// stateOf returns a namespace's state as printed by ip, without counters.
func stateOf(t *testing.T, ns *netns.NS) string {
	t.Helper()
	out := ""
	for _, argv := range []string{
		"ip -o -d link", "ip -o addr", "ip route show table all", "ip -6 route show table all", "ip rule", "ip -6 rule",
		"cat /proc/sys/net/core/somaxconn /proc/sys/net/ipv4/ip_local_port_range /proc/sys/net/ipv4/conf/all/arp_filter",
	} {
		part, _ := nettest.Try(ns, strings.Fields(argv)...)
		out += part
	}
	return out
}

func withPrev(conf, prev string) string {
	return strings.Replace(conf, "{", `{"prevResult":`+prev+`,`, 1)
}

func TestTuning(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	b := conf("1.1.0", "bridge", bridged)
	prev := h.must("bridge", "ADD", b, ns).stdout
	before := stateOf(t, ns)
	c := withPrev(conf("1.1.0", "tuning", tunedOptions), prev)
	result := h.must("tuning", "ADD", c, ns).stdout
	if !strings.Contains(result, `"mac": "02:00:00:00:00:77"`) || !strings.Contains(result, `"mtu": 1400`) {
		t.Errorf("result: %s", result)
	}
	out := nettest.Run(t, ns, "ip", "-d", "link", "show", "eth0")
	for _, word := range []string{"mtu 1400", "PROMISC", "ALLMULTI", "qlen 55", "02:00:00:00:00:77"} {
		if !strings.Contains(out, word) {
			t.Errorf("%s is missing: %s", word, out)
		}
	}
	for name, want := range map[string]string{
		"core/somaxconn": "500", "ipv4/conf/eth0/arp_filter": "1", "ipv4/ip_local_port_range": "2000\t60000",
	} {
		if got := nettest.Run(t, ns, "cat", "/proc/sys/net/"+name); got != want+"\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	text, err := os.ReadFile(h.data + "/tuning/c1_eth0.json")
	mac := prev[strings.LastIndex(prev, `"mac": "`)+8:][:17]
	if want := strings.Replace(backupFile, "MAC", mac, 1); err != nil || string(text) != want {
		t.Errorf("backup: %v %s, want %s", err, text, want)
	}
	checked := withPrev(conf("1.1.0", "tuning", tunedOptions), result)
	h.must("tuning", "CHECK", checked, ns)
	h.must("bridge", "CHECK", withPrev(b, result), ns)
	for _, change := range []string{
		"ip link set eth0 mtu 1300", "ip link set eth0 promisc off", "ip link set eth0 allmulticast off",
		"ip link set eth0 txqueuelen 9",
		"ip link set eth0 address 02:00:00:00:00:78", "sysctl -qw net.core.somaxconn=400",
		"sysctl -qw net.ipv4.conf.eth0.arp_filter=0",
	} {
		nettest.Run(t, ns, strings.Fields(change)...)
		if a := h.call("tuning", "CHECK", checked, ns); a.code() != 102 {
			t.Errorf("CHECK after %q: %s", change, a.stdout)
		}
		h.must("tuning", "DEL", c, ns)
		if got := stateOf(t, ns); got != before {
			t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
		}
		h.must("tuning", "ADD", c, ns)
	}
	h.must("tuning", "DEL", c, ns)
	h.must("tuning", "DEL", c, ns)
	if got := stateOf(t, ns); got != before {
		t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
	}
	for _, pattern := range []string{h.data + "/tuning/*", h.journal + "/*/tuning/*.json"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	h.must("bridge", "DEL", b, ns)
}

// The node's allow list limits the sysctls.
func TestTuningAllowList(t *testing.T) {
	h := newHost(t)
	h.root = t.TempDir()
	ns := nettest.NS(t, "c1")
	prev := `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"` + ns.Path() + `"}]}`
	c := withPrev(conf("1.1.0", "tuning", `,"sysctl":{"net.core.somaxconn":"500"}`), prev)
	if err := os.MkdirAll(h.root+"/etc/cni/tuning", 0o755); err != nil {
		t.Fatal(err)
	}
	for list, code := range map[string]int{"^net.ipv4\\.\n": 7, "^net.ipv4\\.\n^net.core\\.somaxconn$\n": 0} {
		if err := os.WriteFile(h.root+"/etc/cni/tuning/allowlist.conf", []byte(list), 0o644); err != nil {
			t.Fatal(err)
		}
		if a := h.call("tuning", "STATUS", c, nil); a.exit != 0 != (code != 0) ||
			code != 0 && (a.code() != 50 || !strings.Contains(a.stdout, "is not allowed by")) {
			t.Errorf("STATUS with %q: %s", list, a.stdout)
		}
		if a := h.call("tuning", "ADD", c, ns); a.code() != code {
			t.Errorf("ADD with %q: %s", list, a.stdout)
		}
	}
	h.must("tuning", "DEL", c, ns)
}

// Whatever failpoint interrupts a call, and whatever verb follows, the previous state is restored.
func TestTuningCut(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "wire")
	before := stateOf(t, ns)
	prev := `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"` + ns.Path() + `"}]}`
	c := withPrev(conf("1.1.0", "tuning", tunedOptions), prev)
	clean := func(what string) {
		t.Helper()
		if got := stateOf(t, ns); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", what, got, before)
		}
		for _, pattern := range []string{h.data + "/tuning/*", h.journal + "/*/tuning/*.json"} {
			if left, _ := filepath.Glob(pattern); len(left) > 0 {
				t.Errorf("%s: left: %v", what, left)
			}
		}
	}
	n := h.eachCut("tuning", "ADD", c, ns, func(step string) {
		h.must("tuning", "DEL", c, ns)
		clean("ADD cut at " + step + ", DEL")
	})
	h.eachCut("tuning", "ADD", c, ns, func(step string) {
		gc := strings.Replace(c, "{", `{"cni.dev/valid-attachments":[],`, 1)
		h.must("tuning", "GC", gc, ns)
		clean("ADD cut at " + step + ", GC")
	})
	h.eachCut("tuning", "ADD", c, ns, func(step string) {
		h.must("tuning", "ADD", c, ns)
		h.must("tuning", "CHECK", c, ns)
		h.must("tuning", "DEL", c, ns)
		clean("ADD cut at " + step + ", ADD, DEL")
	})
	h.must("tuning", "ADD", c, ns)
	m := h.eachCut("tuning", "DEL", c, ns, func(step string) {
		h.must("tuning", "DEL", c, ns)
		clean("DEL cut at " + step + ", DEL")
		h.must("tuning", "ADD", c, ns)
	})
	if n < 4 || m < 5 {
		t.Errorf("only %d and %d steps were cut", n, m)
	}
	h.must("tuning", "DEL", c, nil)
	clean2, _ := filepath.Glob(h.data + "/tuning/*")
	if len(clean2) > 0 {
		t.Errorf("DEL without namespace: left: %v", clean2)
	}
}

// A list may have the plugin twice. The runtime then executes the same program twice for one attachment.
func TestTuningTwice(t *testing.T) {
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "wire")
	before := stateOf(t, ns)
	prev := `{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"` + ns.Path() + `"}]}`
	one := withPrev(conf("1.1.0", "tuning", `,"dataDir":"DATA/tuning","mtu":1400,"sysctl":{"net.core.somaxconn":"500"}`),
		prev)
	two := withPrev(
		conf("1.1.0", "tuning", `,"dataDir":"DATA/tuning","promisc":true,"mtu":1300,"sysctl":{"net.core.somaxconn":"600"}`),
		prev,
	)
	for _, again := range []bool{false, true} {
		h.must("tuning", "ADD", one, ns)
		h.must("tuning", "ADD", two, ns)
		if again {
			h.must("tuning", "ADD", two, ns) // without a DEL, but the same: it is repeated
			h.must("tuning", "ADD", one, ns)
			h.must("tuning", "ADD", two, ns)
		}
		out := nettest.Run(t, ns, "ip", "link", "show", "eth0")
		if got := nettest.Run(t, ns, "cat", "/proc/sys/net/core/somaxconn"); got != "600\n" ||
			!strings.Contains(out, "PROMISC") || !strings.Contains(out, "mtu 1300") {
			t.Errorf("%s %s", got, out)
		}
		h.must("tuning", "CHECK", two, ns)
		h.must("tuning", "DEL", two, ns)
		h.must("tuning", "DEL", one, ns)
		if got := stateOf(t, ns); got != before {
			t.Errorf("after DEL\n%s\nbefore ADD\n%s", got, before)
		}
		if left, _ := filepath.Glob(h.data + "/tuning/*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// What one program tuned in a container is restored by the other.
func TestTuningExchanged(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	h := newHost(t)
	ns := nettest.NS(t, "c1")
	nettest.Run(t, ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "wire")
	options, _, _ := strings.Cut(tunedOptions, `,
		"sysctl"`)
	prev := `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"` + ns.Path() + `"}]}`
	c := withPrev(conf("1.0.0", "tuning", options), prev)
	before := stateOf(t, ns)
	same := func(who string) {
		t.Helper()
		if got := stateOf(t, ns); got != before {
			t.Errorf("%s:\n%s\nbefore:\n%s", who, got, before)
		}
		if left, _ := filepath.Glob(h.data + "/tuning/*"); len(left) > 0 {
			t.Errorf("%s: left: %v", who, left)
		}
	}
	result := h.peer(bin, "tuning", "ADD", c, ns)
	h.must("tuning", "CHECK", withPrev(conf("1.0.0", "tuning", options), result), ns)
	nettest.Run(t, ns, "ip", "link", "set", "eth0", "txqueuelen", "9")
	if a := h.call("tuning", "CHECK", withPrev(conf("1.0.0", "tuning", options), result), ns); a.code() != 102 ||
		!strings.Contains(a.stdout, "qlen 9") {
		t.Errorf("weft's CHECK of the peer's ADD: %s", a.stdout)
	}
	h.must("tuning", "DEL", c, ns)
	same("weft's DEL of the peer's ADD")
	result = h.must("tuning", "ADD", c, ns).stdout
	h.peer(bin, "tuning", "CHECK", withPrev(conf("1.0.0", "tuning", options), result), ns)
	h.peer(bin, "tuning", "DEL", c, ns)
	same("the peer's DEL of weft's ADD")
	h.must("tuning", "ADD", c, ns)
	h.must("tuning", "DEL", c, ns)
	same("weft after both")
	h.peer(bin, "tuning", "ADD", c, ns)
	h.must("tuning", "DEL", c, nil)
	if left, _ := filepath.Glob(h.data + "/tuning/*"); len(left) > 0 {
		t.Errorf("weft's DEL without namespace: left: %v", left)
	}
}

// eachCut interrupts a call at its first, second … failpoint, as a kill would, and calls after each time. It returns
// how often.
func (h *host) eachCut(name, verb, conf string, ns *netns.NS, then func(step string), env ...string) int {
	h.t.Helper()
	for n := 1; ; n++ {
		at, count := "", 0
		h.step = func(step string) error {
			if count++; count >= n {
				if count == n {
					at = fmt.Sprintf("%d (%s)", n, step)
				}
				return errCut
			}
			return nil
		}
		a := h.call(name, verb, conf, ns, env...)
		h.step = nil
		if at == "" {
			if a.exit != 0 {
				h.t.Fatalf("%s %s, not cut: %s", name, verb, a.stdout)
			}
			then("its end")
			return n - 1
		}
		then(at)
	}
}
