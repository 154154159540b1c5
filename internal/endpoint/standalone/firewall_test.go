// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// guarded is a container behind a firewall.
type guarded struct {
	name, bridge, policy string
	ns                   *netns.NS
	v4, v6               string
	prev, bridgeConf     string
	conf                 string
}

// guard attaches a container to a bridge, followed by firewall. plugin runs a plugin: weft's or another.
func guard(
	t *testing.T, h *host, plugin func(name, verb, conf string, g *guarded) string, g *guarded, n int, options string,
) {
	t.Helper()
	g.ns = nettest.NS(t, g.name)
	g.v4, g.v6 = fmt.Sprintf("10.%d.0.%d", 100+g.bridge[len(g.bridge)-1], n+2),
		fmt.Sprintf("fd00:%d::%d", 100+g.bridge[len(g.bridge)-1], n+2)
	gw4, gw6 := g.v4[:strings.LastIndex(g.v4, ".")]+".1", g.v6[:strings.LastIndex(g.v6, "::")]+"::1"
	g.bridgeConf = fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"net-%s","type":"bridge","bridge":%q,"isDefaultGateway":true,"ipam":{"type":"static",
		"addresses":[{"address":"%s/24","gateway":%q},{"address":"%s/64","gateway":%q}]}}`, g.bridge, g.bridge, g.v4, gw4, g.v6, gw6)
	g.prev = h.must("bridge", "ADD", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name).stdout
	policy := ""
	if g.policy != "" {
		policy = fmt.Sprintf(`,"ingressPolicy":%q`, g.policy)
	}
	g.conf = with(g.prev,
		fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net-%s","type":"firewall"%s%s}`, g.bridge, options, policy))
	sameJSON(t, g.prev, plugin("firewall", "ADD", g.conf, g))
}

// world has pods on three bridges with a policy each, two of each kind, and a bridge without a policy.
func world() []*guarded {
	return []*guarded{
		{name: "same-a", bridge: "fwbr1", policy: "same-bridge"},
		{name: "same-b", bridge: "fwbr1", policy: "same-bridge"},
		{name: "isolated-a", bridge: "fwbr2", policy: "isolated"},
		{name: "isolated-b", bridge: "fwbr2", policy: "isolated"},
		{name: "open-a", bridge: "fwbr3", policy: "open"},
		{name: "open-b", bridge: "fwbr3"},
	}
}

// allowed is the reference plugin's matrix: packets from a bridge with a policy do not reach another such bridge;
// isolated containers do not reach each other.
func allowed(from, to *guarded) bool {
	if from.bridge == to.bridge {
		return to.policy != "isolated"
	}
	policy := func(g *guarded) bool { return g.policy == "same-bridge" || g.policy == "isolated" }
	return !policy(from) || !policy(to)
}

// patience is ping's option for a request that should be answered, or not: the former is sent again each second, because the
// first ones may be lost while neighbors are resolved.
var patience = map[bool]string{true: "-w30", false: "-W1"}

func checkMatrix(t *testing.T, pods []*guarded, allowed func(from, to *guarded) bool) {
	t.Helper()
	type probe struct{ what, failure string }
	results := make(chan probe)
	n := 0
	for _, from := range pods {
		for _, to := range pods {
			if from == to {
				continue
			}
			for _, addr := range []string{to.v4, to.v6} {
				n++
				go func() {
					want := allowed(from, to)
					_, err := nettest.Try(from.ns, "ping", "-c1", patience[want], addr)
					p := probe{what: fmt.Sprintf("%s → %s (%s)", from.name, to.name, addr)}
					if want != (err == nil) {
						p.failure = fmt.Sprintf("passes: %t, want %t", err == nil, want)
					}
					results <- p
				}()
			}
		}
	}
	for range n {
		if p := <-results; p.failure != "" {
			t.Errorf("%s: %s", p.what, p.failure)
		}
	}
}

// checkNode checks that every pod reaches the node and the node every pod, whatever its policy.
func checkNode(t *testing.T, pods []*guarded) {
	t.Helper()
	for _, g := range pods {
		nettest.Run(t, g.ns, "ping", "-c1", "-W20", g.v4[:strings.LastIndex(g.v4, ".")]+".1")
		nettest.Run(t, nil, "ping", "-c1", "-W20", g.v6)
	}
}

func sweepBridges(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, b := range []string{"fwbr1", "fwbr2", "fwbr3"} {
			_, _ = nettest.Try(nil, "ip", "link", "del", b)
		}
	})
}

// TestFirewallMatrix attaches pods of every policy and sends packets between all of them, with weft's own tables, with
// and without bridge netfilter.
func TestFirewallMatrix(t *testing.T) {
	const seen = "/proc/sys/net/bridge/bridge-nf-call-ip"
	before, err := os.ReadFile(seen + "tables")
	if err != nil {
		t.Run("bridges not seen", func(t *testing.T) { matrix(t, "nftables", "") })
		return
	}
	for _, value := range []string{"0", "1"} {
		for _, family := range []string{"", "6"} {
			if err := os.WriteFile(seen+family+"tables", []byte(value), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.WriteFile(seen+family+"tables", before, 0o600) })
		}
		t.Run("bridges seen "+value, func(t *testing.T) { matrix(t, "nftables", "weft_firewall") })
	}
	t.Run("iptables", func(t *testing.T) { matrix(t, "iptables", "CNI-ISOLATION") })
}

// matrix does so with a backend, which is visible in nft's ruleset.
func matrix(t *testing.T, backend, sign string) {
	h := newHost(t)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "nft", "flush", "ruleset") })
	sweepBridges(t)
	pods := world()
	weft := func(name, verb, conf string, g *guarded) string {
		return h.must(name, verb, conf, g.ns, "CNI_CONTAINERID="+g.name).stdout
	}
	for i, g := range pods {
		guard(t, h, weft, g, i, fmt.Sprintf(`,"backend":%q`, backend))
	}
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); !strings.Contains(out, sign) {
		t.Errorf("no %s in %s", sign, out)
	}
	checkNode(t, pods)
	checkMatrix(t, pods, allowed)
	for _, g := range pods {
		weft("firewall", "CHECK", g.conf, g)
	}
	change := []string{"nft", "delete", "element", "inet", "weft_firewall", "pods4", "{", pods[0].v4, "}"}
	if backend == "iptables" {
		change = []string{"iptables", "-D", "CNI-FORWARD", "-s", pods[0].v4, "-j", "ACCEPT"}
	}
	nettest.Run(t, nil, change...)
	if a := h.call("firewall", "CHECK", pods[0].conf, pods[0].ns, "CNI_CONTAINERID="+pods[0].name); a.code() != 102 ||
		!strings.Contains(a.stdout, pods[0].v4) {
		t.Errorf("CHECK without its element: %s", a.stdout)
	}
	for i, g := range pods {
		weft("firewall", "DEL", g.conf, g)
		weft("firewall", "DEL", g.conf, g)
		if out := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(out, g.v4+" ") ||
			strings.Contains(out, g.v6+" ") {
			t.Errorf("after DEL of %s: %s", g.name, out)
		}
		if i == 0 { // what was the first one's alone is gone, what it shared is not
			checkMatrix(t, pods[1:], allowed)
		}
	}
	if out := strings.TrimSpace(nettest.Run(t, nil, "nft", "list", "ruleset")); backend == "nftables" && out != "" {
		t.Errorf("left: %s", out)
	}
	for _, g := range pods {
		h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
	}
}

// TestFirewallBehindPtp isolates containers without a bridge, and GC removes objects without a record.
func TestFirewallBehindPtp(t *testing.T) {
	h := newHost(t)
	var pods []*guarded
	for i, policy := range []string{"same-bridge", "isolated", "open"} {
		g := &guarded{name: "ptp-" + policy, bridge: policy, policy: policy}
		g.ns = nettest.NS(t, g.name)
		g.v4, g.v6 = fmt.Sprintf("10.110.0.%d", i+2), fmt.Sprintf("fd00:110::%d", i+2)
		g.bridgeConf = fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":"net","type":"ptp","ipam":{"type":"static","routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}],
			"addresses":[{"address":"%s/24","gateway":"10.110.0.1"},{"address":"%s/64","gateway":"fd00:110::1"}]}}`, g.v4, g.v6)
		g.prev = h.must("ptp", "ADD", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name).stdout
		g.conf = with(
			g.prev,
			fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"firewall","backend":"nftables","ingressPolicy":%q}`, policy),
		)
		h.must("firewall", "ADD", g.conf, g.ns, "CNI_CONTAINERID="+g.name)
		pods = append(pods, g)
	}
	checkMatrix(t, pods, allowed)
	h.must("firewall", "DEL", pods[0].conf, pods[0].ns, "CNI_CONTAINERID="+pods[0].name)
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(out, hostEnd(t, pods[0].prev)) {
		t.Errorf("the container's own link is left in a set: %s", out)
	}
	checkMatrix(t, pods[1:], allowed)
	h.journal = t.TempDir() // no record is left
	h.must(
		"firewall", "GC",
		`{"cniVersion":"1.1.0","name":"net","type":"firewall","cni.dev/valid-attachments":[{"containerID":"ptp-isolated","ifname":"eth0"}]}`, nil,
	)
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); strings.Contains(out, pods[2].v4+" ") ||
		!strings.Contains(out, pods[1].v4+" ") {
		t.Errorf("after GC: %s", out)
	}
	h.must("firewall", "GC", `{"cniVersion":"1.1.0","name":"net","type":"firewall","cni.dev/valid-attachments":[]}`, nil)
	if out := strings.TrimSpace(nettest.Run(t, nil, "nft", "list", "ruleset")); out != "" {
		t.Errorf("left after GC: %s", out)
	}
	for _, g := range pods {
		h.must("ptp", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
	}
}

// TestFirewallMatrixOfTheReference runs the matrix with the reference plugin.
func TestFirewallMatrixOfTheReference(t *testing.T) {
	nettest.EndToEnd(t)
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: the matrix is not compared with the reference firewall's")
	}
	h := newHost(t)
	sweepBridges(t)
	t.Cleanup(func() { _, _ = nettest.Try(nil, "nft", "flush", "ruleset") })
	pods := world()
	for i, g := range pods {
		guard(t, h, func(name, verb, conf string, g *guarded) string {
			return h.peerOf(bin, name, verb, conf, g.ns, g.name)
		}, g, i, "")
	}
	_, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables")
	checkMatrix(t, pods, func(from, to *guarded) bool {
		if from.bridge == to.bridge && err != nil {
			return true // without br_netfilter the reference plugin does not see what a bridge passes
		}
		return allowed(from, to)
	})
	for _, g := range pods {
		h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
	}
}

// saved returns the filter tables as iptables-save prints them, without counters, sorted by chains and rules.
func saved(t *testing.T) string {
	t.Helper()
	var out []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		for line := range strings.Lines(nettest.Run(t, nil, program, "-t", "filter")) {
			if strings.HasPrefix(line, "-A") {
				out = append(out, program+" "+line)
			} else if strings.HasPrefix(line, ":") {
				out = append(out, program+" "+strings.Fields(line)[0]+"\n")
			}
		}
	}
	return strings.Join(out, "")
}

// TestFirewallRulesOfTheReference compares weft's iptables rules with those of the reference plugin, line by line, and
// each removes what the other created.
func TestFirewallRulesOfTheReference(t *testing.T) {
	nettest.EndToEnd(t)
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: rules are not compared with the reference firewall's")
	}
	for _, policy := range []string{"open", "same-bridge", "isolated"} {
		t.Run(policy, func(t *testing.T) {
			h := newHost(t)
			sweepBridges(t)
			t.Cleanup(func() { _, _ = nettest.Try(nil, "nft", "flush", "ruleset") })
			weft := func(name, verb, conf string, g *guarded) string {
				return h.must(name, verb, conf, g.ns, "CNI_CONTAINERID="+g.name).stdout
			}
			reference := func(name, verb, conf string, g *guarded) string {
				return h.peerOf(bin, name, verb, conf, g.ns, g.name)
			}
			made := map[string]string{}
			for name, plugin := range map[string]func(name, verb, conf string, g *guarded) string{
				"weft": weft, "reference": reference,
			} {
				nettest.Run(t, nil, "nft", "flush", "ruleset")
				g := &guarded{name: name, bridge: "fwbr1", policy: policy}
				guard(t, h, plugin, g, 0, `,"backend":"iptables","iptablesAdminChainName":"MINE"`)
				made[name] = saved(t)
				weft("firewall", "CHECK", g.conf, g)
				reference("firewall", "CHECK", g.conf, g)
				other := weft
				if name == "weft" {
					other = reference
				}
				if name == "reference" {
					nettest.Run(t, nil, "ip6tables", "-D", "CNI-FORWARD", "-s", g.v6, "-j", "ACCEPT")
					if a := h.call("firewall", "CHECK", g.conf, g.ns, "CNI_CONTAINERID="+g.name); a.code() != 102 ||
						!strings.Contains(a.stdout, g.v6) {
						t.Errorf("CHECK without one of the reference's rules: %s", a.stdout)
					}
				}
				other("firewall", "DEL", g.conf, g)
				if left := saved(t); strings.Contains(left, g.v4) || strings.Contains(left, g.v6) {
					t.Errorf("what %s made, after the other's DEL:\n%s", name, left)
				}
				weft("firewall", "DEL", g.conf, g)
				h.must("bridge", "DEL", g.bridgeConf, g.ns, "CNI_CONTAINERID="+g.name)
			}
			if d := cmp.Diff(made["reference"], made["weft"]); d != "" || made["weft"] == "" {
				t.Errorf("iptables-save (-reference +weft):\n%s", d)
			}
		})
	}
}
