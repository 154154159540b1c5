// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"strings"
)

// chains writes one chain per policy and one rule per peer.
type chains struct{}

func (chains) name() string     { return "iptables" }
func (chains) sets(Cell) string { return "" }

func (chains) rules(c Cell) string {
	var b strings.Builder
	b.WriteString("*filter\n:POD - [0:0]\n")
	b.WriteString("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n")
	for i := range c.Policies {
		fmt.Fprintf(&b, ":POLICY-%d - [0:0]\n-A POD -j POLICY-%d\n", i, i)
	}
	if c.Policies > 0 {
		fmt.Fprintf(&b, "-A FORWARD -o %s -j POD\n-A POD -j DROP\n", serverLink)
	}
	for i := range c.Policies {
		for _, p := range c.peersOf(i) {
			fmt.Fprintf(&b, "-A POLICY-%d -s %s -p tcp -m tcp --dport 7000 -j ACCEPT\n", i, p)
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func (chains) addPeer(_ Cell, p netip.Prefix) (sets, rules string) {
	return "", fmt.Sprintf("*filter\n-A POLICY-0 -s %s -p tcp -m tcp --dport 7000 -j ACCEPT\nCOMMIT\n", p)
}

// setsOf returns one ipset per policy.
func setsOf(c Cell, kind, name string) string {
	var b strings.Builder
	for i := range c.Policies {
		fmt.Fprintf(&b, "create %s%d hash:%s family inet hashsize 1024 maxelem 1048576\n", name, i, kind)
		for _, p := range c.peersOf(i) {
			fmt.Fprintf(&b, "add %s%d %s\n", name, i, plain(p))
		}
	}
	return b.String()
}

// plain formats a prefix, without its length if it is a single address.
func plain(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// calico writes rules like Calico's iptables dataplane: dispatch chains jump to one chain per endpoint and direction,
// which jumps to one chain per policy, whose rule matches an ipset and sets a mark. An endpoint without policies uses
// its profile.
type calico struct{}

func (calico) name() string       { return "calico" }
func (calico) sets(c Cell) string { return setsOf(c, "net", "cali40s") }
func (calico) rules(c Cell) string {
	const accept = "-m mark --mark 0x10000/0x10000"
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("*filter")
	for _, chain := range []string{
		"cali-FORWARD", "cali-from-wl-dispatch", "cali-to-wl-dispatch", "cali-pri-ns", "cali-pro-ns",
	} {
		line(":%s - [0:0]", chain)
	}
	line("-A FORWARD -j cali-FORWARD\n-A FORWARD %s -j ACCEPT", accept)
	line("-A cali-FORWARD -j MARK --set-xmark 0x0/0xe0000")
	line("-A cali-FORWARD -i cali+ -j cali-from-wl-dispatch\n-A cali-FORWARD -o cali+ -j cali-to-wl-dispatch")
	for _, link := range []string{clientLink, serverLink} {
		for _, d := range []struct{ chain, dispatch, flag, profile string }{
			{"cali-fw-" + link, "cali-from-wl-dispatch", "-i", "cali-pro-ns"},
			{"cali-tw-" + link, "cali-to-wl-dispatch", "-o", "cali-pri-ns"},
		} {
			line(":%s - [0:0]", d.chain)
			line("-A %s %s %s -g %s", d.dispatch, d.flag, link, d.chain)
			line("-A %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A %s -m conntrack --ctstate INVALID -j DROP",
				d.chain, d.chain)
			line("-A %s -j MARK --set-xmark 0x0/0x10000", d.chain)
			if d.flag == "-i" {
				line("-A %s -p udp -m multiport --dports 4789 -j DROP\n-A %s -p ipencap -j DROP", d.chain, d.chain)
			}
			if link == serverLink && d.flag == "-o" && c.Policies > 0 {
				line("-A %s -j MARK --set-xmark 0x0/0x20000", d.chain)
				for i := range c.Policies {
					line(":cali-pi-%d - [0:0]", i)
					line(
						"-A cali-pi-%d -p tcp -m set --match-set cali40s%d src -m multiport --dports 7000 -j MARK --set-xmark 0x10000/0x10000", i, i,
					)
					line("-A cali-pi-%d %s -j RETURN", i, accept)
					line("-A %s -m mark --mark 0x0/0x20000 -j cali-pi-%d\n-A %s %s -j RETURN", d.chain, i, d.chain, accept)
				}
				line("-A %s -m mark --mark 0x0/0x20000 -j DROP", d.chain)
			}
			line("-A %s -j %s\n-A %s %s -j RETURN\n-A %s -j DROP", d.chain, d.profile, d.chain, accept, d.chain)
		}
	}
	line("-A cali-from-wl-dispatch -j DROP\n-A cali-to-wl-dispatch -j DROP")
	for _, chain := range []string{"cali-pri-ns", "cali-pro-ns"} {
		line("-A %s -j MARK --set-xmark 0x10000/0x10000\n-A %s %s -j RETURN", chain, chain, accept)
	}
	line("COMMIT")
	return b.String()
}

func (calico) addPeer(_ Cell, p netip.Prefix) (sets, rules string) {
	return "add cali40s0 " + plain(p) + "\n", ""
}

// kubeRouter writes rules like kube-router's: one chain per pod, which jumps to one chain per policy with a set of
// sources and a set of destinations, marks, and rejects unmarked packets at its end.
type kubeRouter struct{}

func (kubeRouter) name() string { return "kube-router" }

func (kubeRouter) sets(c Cell) string {
	kind := "ip"
	if c.Blocks {
		kind = "net"
	}
	var b strings.Builder
	b.WriteString(setsOf(c, kind, "KUBE-SRC-"))
	for i := range c.Policies {
		fmt.Fprintf(&b, "create KUBE-DST-%d hash:ip family inet\nadd KUBE-DST-%d %s\n", i, i, serverAddr())
	}
	return b.String()
}

func (kubeRouter) rules(c Cell) string {
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	line("*filter\n:KUBE-ROUTER-FORWARD - [0:0]\n:KUBE-NWPLCY-DEFAULT - [0:0]\n-A FORWARD -j KUBE-ROUTER-FORWARD")
	for p := range c.Policies {
		line(":KUBE-NWPLCY-%d - [0:0]", p)
	}
	line("-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000")
	for i, addr := range []netip.Addr{clientAddr(), serverAddr()} {
		pod := fmt.Sprintf("KUBE-POD-FW-%d", i)
		line(":%s - [0:0]", pod)
		line("-A KUBE-ROUTER-FORWARD -s %s -j %s\n-A KUBE-ROUTER-FORWARD -d %s -j %s", addr, pod, addr, pod)
		line("-A %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A %s -m conntrack --ctstate INVALID -j DROP", pod,
			pod)
		line("-A %s -d %s -m addrtype --src-type LOCAL -j ACCEPT", pod, addr)
		if i == 1 && c.Policies > 0 {
			for p := range c.Policies {
				line("-A %s -d %s -j KUBE-NWPLCY-%d", pod, addr, p)
			}
		} else {
			line("-A %s -d %s -j KUBE-NWPLCY-DEFAULT", pod, addr)
		}
		line("-A %s -s %s -j KUBE-NWPLCY-DEFAULT", pod, addr)
		line("-A %s -m mark ! --mark 0x10000/0x10000 -j REJECT --reject-with icmp-port-unreachable", pod)
		line("-A %s -j MARK --set-xmark 0x0/0x10000\n-A %s -j MARK --set-xmark 0x20000/0x20000", pod, pod)
	}
	line("-A KUBE-ROUTER-FORWARD -m mark --mark 0x20000/0x20000 -j ACCEPT")
	for i := range c.Policies {
		for _, target := range []string{"MARK --set-xmark 0x10000/0x10000", "RETURN"} {
			mark := ""
			if target == "RETURN" {
				mark = "-m mark --mark 0x10000/0x10000 "
			}
			line(
				"-A KUBE-NWPLCY-%d -p tcp -m set --match-set KUBE-SRC-%d src -m set --match-set KUBE-DST-%d dst -m tcp --dport 7000 %s-j %s", i, i, i, mark, target,
			)
		}
	}
	line("COMMIT")
	return b.String()
}

func (kubeRouter) addPeer(_ Cell, p netip.Prefix) (sets, rules string) {
	return "add KUBE-SRC-0 " + plain(p) + "\n", ""
}
