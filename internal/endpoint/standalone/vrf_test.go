// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const vrfNet = `,"bridge":"sbr0","isGateway":true,"ipam":{"type":"static","addresses":[{"address":"10.6.0.5/24","gateway":"10.6.0.1"},{"address":"fd00:6::5/64","gateway":"fd00:6::1"}],
	"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"},{"dst":"172.16.0.0/16","table":50}]}`

// inVRF checks whether the container's interface is in a VRF, with its addresses and routes.
func inVRF(t *testing.T, ns *netns.NS, vrf, table string) {
	t.Helper()
	for argv, want := range map[string]string{
		"ip -d link show " + vrf:          "vrf table " + table,
		"ip link show eth0":               "master " + vrf,
		"ip route show table " + table:    "default via 10.6.0.1 dev eth0",
		"ip -6 route show table " + table: "default via fd00:6::1 dev eth0",
		"ip route show table 50":          "172.16.0.0/16 via 10.6.0.1 dev eth0",
	} {
		if out := nettest.Run(t, ns, strings.Fields(argv)...); !strings.Contains(out, want) {
			t.Errorf("%s: %q is missing: %s", argv, want, out)
		}
	}
	for _, to := range []string{"10.6.0.1", "fd00:6::1"} {
		nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", vrf, to)
	}
}

// A VRF is created for the first interface and deleted with the last one; the interface is then as before.
func TestVRF(t *testing.T) {
	nettest.Need(t, "vrf")
	h := newHost(t)
	ns := quickNS(t)
	prev := h.must("bridge", "ADD", conf("1.1.0", "bridge", vrfNet), ns).stdout
	before := steady(stateOf(t, ns))
	c := withPrev(conf("1.1.0", "vrf", `,"vrfname":"blue"`), prev)
	h.must("vrf", "STATUS", conf("1.1.0", "vrf", `,"vrfname":"blue"`), nil)
	result := h.must("vrf", "ADD", c, ns).stdout
	if strings.Join(strings.Fields(result), "") != strings.Join(strings.Fields(prev), "") {
		t.Errorf("the result changed: %s", result)
	}
	inVRF(t, ns, "blue", "1")
	if a := h.call("vrf", "ADD", c, ns); a.exit == 0 {
		t.Error("a second ADD")
	}
	for _, typ := range []string{"bridge", "vrf"} {
		options := map[string]string{"bridge": vrfNet, "vrf": `,"vrfname":"blue"`}[typ]
		h.must(typ, "CHECK", withPrev(conf("1.1.0", typ, options), result), ns)
	}
	ipLines(t, ns, "route del default table 1")
	if a := h.call("vrf", "CHECK", c, ns); a.code() != 102 ||
		!strings.Contains(a.stdout, "missing route 0.0.0.0/0 via 10.6.0.1 dev eth0 table 1") {
		t.Errorf("CHECK: %s", a.stdout)
	}
	ipLines(t, ns, "route add default via 10.6.0.1 dev eth0 table 1 proto 119")
	for range 2 {
		h.must("vrf", "DEL", c, ns)
	}
	if got := vrfless(steady(stateOf(t, ns))); got != vrfless(before) {
		t.Errorf("DEL left\n%s\nof\n%s", got, before)
	}
	h.must("vrf", "ADD", c, ns)
	h.must("bridge", "DEL", conf("1.1.0", "bridge", vrfNet), ns)
	h.must("vrf", "DEL", c, nil)
	if left, _ := filepath.Glob(h.journal + "/*/*/*.json"); len(left) > 0 {
		t.Errorf("records: %v", left)
	}
}

// vrfless omits the rule that the kernel adds for the first VRF of a namespace, and keeps, and route counters.
func vrfless(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if !strings.Contains(line, "l3mdev-table") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Two interfaces share a VRF. One with another table is rejected.
func TestVRFShared(t *testing.T) {
	nettest.Need(t, "vrf")
	h := newHost(t)
	ns := quickNS(t)
	first := h.must("bridge", "ADD", conf("1.1.0", "bridge", vrfNet), ns).stdout
	otherConf := strings.Replace(conf("1.1.0", "bridge", strings.ReplaceAll(vrfNet, "6.0.", "7.0.")), `"name":"n"`,
		`"name":"m"`, 1)
	otherConf = strings.ReplaceAll(strings.ReplaceAll(otherConf, "fd00:6", "fd00:7"), "sbr0", "sbr1")
	_, _ = nettest.Try(nil, "ip", "link", "del", "sbr1")
	otherConf = regexp.MustCompile(`,\s*"routes":\[.*\]`).ReplaceAllString(otherConf, "")
	second := h.must("bridge", "ADD", otherConf, ns, "CNI_IFNAME=net1").stdout
	blue := `,"vrfname":"blue","table":9`
	h.must("vrf", "ADD", withPrev(conf("1.1.0", "vrf", blue), first), ns)
	if a := h.call("vrf", "ADD", withPrev(conf("1.1.0", "vrf", `,"vrfname":"blue","table":8`), second), ns,
		"CNI_IFNAME=net1"); a.code() != 7 || !strings.Contains(a.stdout, `VRF \"blue\" exists with table 9`) {
		t.Errorf("another table: %s", a.stdout)
	}
	h.must("vrf", "ADD", withPrev(conf("1.1.0", "vrf", `,"vrfname":"blue"`), second), ns, "CNI_IFNAME=net1")
	inVRF(t, ns, "blue", "9")
	h.must("vrf", "DEL", withPrev(conf("1.1.0", "vrf", `,"vrfname":"blue"`), second), ns, "CNI_IFNAME=net1")
	inVRF(t, ns, "blue", "9")
	h.must("vrf", "DEL", withPrev(conf("1.1.0", "vrf", blue), first), ns)
	if out, err := nettest.Try(ns, "ip", "link", "show", "blue"); err == nil {
		t.Errorf("it is left: %s", out)
	}
}

// The membership that one program created can be checked and removed by the other.
func TestVRFExchanged(t *testing.T) {
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: not exchanged with the reference plugins")
	}
	nettest.Need(t, "vrf")
	h := newHost(t)
	ns := quickNS(t)
	// The reference plugin loses routes of other tables.
	plain := strings.Replace(conf("1.0.0", "bridge", vrfNet), `,{"dst":"172.16.0.0/16","table":50}`, "", 1)
	prev := h.must("bridge", "ADD", plain, ns).stdout
	c := withPrev(conf("1.0.0", "vrf", `,"vrfname":"blue"`), prev)
	gone := func(who string) {
		t.Helper()
		if out, err := nettest.Try(ns, "ip", "link", "show", "blue"); err == nil {
			t.Errorf("%s: %s", who, out)
		}
		if out := nettest.Run(t, ns, "ip", "link", "show", "eth0"); strings.Contains(out, "master") {
			t.Errorf("%s: %s", who, out)
		}
	}
	h.peer(bin, "vrf", "ADD", c, ns)
	h.must("vrf", "CHECK", c, ns)
	h.must("vrf", "DEL", c, ns)
	gone("weft's DEL of the peer's ADD")
	h.must("vrf", "ADD", c, ns)
	h.peer(bin, "vrf", "CHECK", c, ns)
	h.peer(bin, "vrf", "DEL", c, ns)
	gone("the peer's DEL of weft's ADD")
	h.must("vrf", "DEL", c, ns)
	gone("weft after both")
}
