// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// portMap is what is planned for one container.
type portMap struct {
	conf    portmapConf
	key     model.AttachmentKey
	targets []target
}

// target is an address of the container and the ports that are mapped to it.
type target struct {
	net   netip.Prefix
	ports []hostPort
	// link is the interface over which the node reaches the address; shared is set if it reaches other addresses over it
	// as well.
	link   string
	shared bool
}

func (t target) addr() netip.Addr { return t.net.Addr() }

// table returns weft's own table with the container's elements.
func (p portMap) table() state.Table {
	t := hostPorts(p.conf)
	mark := elementMark(p.key)
	add := func(name string, e state.Element) {
		for i := range t.Sets {
			if t.Sets[i].Name == name {
				t.Sets[i].Elements = append(t.Sets[i].Elements, e)
			}
		}
	}
	suffix := variant(p.conf)
	for _, to := range p.targets {
		family, addr := familyOf(to.addr()), to.addr().String()
		for _, h := range to.ports {
			e := state.Element{Key: []string{h.proto, number(h.port)}, Val: []string{addr, number(h.to)}, Comment: mark}
			name := "ports" + family + suffix
			if h.at.IsValid() {
				name, e.Key = "ports"+family+"_at"+suffix, append([]string{h.at.String()}, e.Key...)
			}
			add(name, e)
		}
		if !p.conf.SNAT {
			continue
		}
		if p.conf.MasqAll {
			add("all"+family+suffix, state.Element{Key: []string{addr}, Comment: mark})
		} else {
			// self: hairpin, the pod reaches itself.
			add("self"+family+suffix, state.Element{Key: []string{addr, addr}, Comment: mark})
		}
		if to.link != "" && !p.conf.MasqAll {
			// hairpin: another pod behind the same interface.
			add("hairpin"+family+suffix, state.Element{Key: []string{quoted(to.link), addr}, Comment: mark})
		}
		if to.localnet() {
			e := state.Element{Key: []string{quoted(to.link)}, Comment: mark}
			if to.shared {
				e.Comment, e.Shared = state.SharedComment, true
			}
			add("localnet", e)
		}
	}
	return t
}

func number(n uint16) string { return strconv.Itoa(int(n)) }

// localnet reports whether the node's 127.0.0.1 is mapped to the target.
func (t target) localnet() bool {
	if t.link == "" || t.addr().Is6() {
		return false
	}
	for _, h := range t.ports {
		if !h.at.IsValid() || h.at.IsLoopback() {
			return true
		}
	}
	return false
}

// sysctls returns the settings that route packets from 127.0.0.0/8 to the container.
func (p portMap) sysctls() []state.Sysctl {
	var out []state.Sysctl
	for _, t := range p.targets {
		if p.conf.SNAT && t.localnet() {
			out = append(out, state.Sysctl{Name: "net/ipv4/conf/" + t.link + "/route_localnet", Value: "1"})
		}
	}
	return out
}

// effects returns the conntrack flushes. A new mapping must apply to datagrams from known peers, whose entries never
// end by themselves. When a container is deleted, all entries translated to it are deleted.
func (p portMap) effects() []state.Effect {
	made := state.Effect{Kind: state.FlushConntrack, Space: state.Host}
	gone := state.Effect{Kind: state.FlushConntrack, Space: state.Host, When: state.OnRemove}
	for _, t := range p.targets {
		v6 := t.addr().Is6()
		for _, h := range t.ports {
			if h.proto != "tcp" {
				made.Flows = append(made.Flows, state.Flow{IPv6: v6, Proto: h.proto, Port: h.port, Dst: h.at})
			}
		}
		gone.Flows = append(gone.Flows, state.Flow{IPv6: v6, ReplySrc: t.addr()})
	}
	if len(made.Flows) == 0 {
		return []state.Effect{gone}
	}
	return []state.Effect{made, gone}
}

// variant returns the suffix of chains and sets, empty for the default configuration. A configuration with conditions,
// or with another bit of the mark, has its own chains and sets: all mappings in a chain share its rules.
func variant(c portmapConf) string {
	v4, v6 := conditions(c.ConditionsV4), conditions(c.ConditionsV6)
	if len(v4)+len(v6) == 0 && c.bit == nftBit {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%q\n%q", c.bit, strings.Join(v4, " "), strings.Join(v6, " ")))
	return "_" + hex.EncodeToString(sum[:4])
}

// hostPorts returns the table of a variant without elements. Packets to a port of the node are marked and redirected by
// the maps: those of an address take precedence over those of all addresses. Redirected packets are masqueraded if the
// reply would not pass this node: when a container connects to itself, when a packet leaves over the interface on which
// it arrived (a neighbor on a bridge), and when its source is the node's loopback address. The last is IPv4 only: the
// kernel drops a reply to ::1 from another interface. Packets to 127.0.0.0/8 never arrive over a network; the kernel
// drops them unless route_localnet is set, so this table does. The mark is cleared before other programs masquerade by
// marks (priority 100).
func hostPorts(c portmapConf) state.Table {
	v := variant(c)
	bit := uint32(1) << c.bit
	t := state.Table{Family: "inet", Name: "weft_hostports", Shared: true}
	for _, family := range []string{"4", "6"} {
		addr := "ipv" + family + "_addr"
		t.Sets = append(t.Sets,
			state.Set{
				Name: "ports" + family + v, Key: "inet_proto . inet_service", Data: addr + " . inet_service",
				Exclusive: "ports" + family,
			},
			state.Set{
				Name: "ports" + family + "_at" + v, Key: addr + " . inet_proto . inet_service", Data: addr + " . inet_service",
				Exclusive: "ports" + family,
			},
			// hairpin: another pod behind the same interface. self: hairpin, the pod reaches itself.
			state.Set{Name: "hairpin" + family + v, Key: "ifname . " + addr},
			state.Set{Name: "self" + family + v, Key: addr + " . " + addr},
			state.Set{Name: "all" + family + v, Key: addr})
	}
	t.Sets = append(t.Sets, state.Set{Name: "localnet", Key: "ifname"})
	t.Chains = []state.Chain{
		{Name: "martian", Type: "filter", Hook: "prerouting", Priority: -300, Policy: "accept", Rules: []state.NftRule{
			{Text: "iifname @localnet ip daddr 127.0.0.0/8 drop"},
		}},
		{Name: "hostports" + v, Rules: texts("ip6 daddr ::1 return",
			fmt.Sprintf("meta mark set meta mark | 0x%08x", bit),
			"dnat ip to ip daddr . meta l4proto . th dport map @ports4_at"+v,
			"dnat ip to meta l4proto . th dport map @ports4"+v,
			"dnat ip6 to ip6 daddr . meta l4proto . th dport map @ports6_at"+v,
			"dnat ip6 to meta l4proto . th dport map @ports6"+v,
			fmt.Sprintf("meta mark set meta mark & 0x%08x", ^bit))},
		{Name: "prerouting" + v, Type: "nat", Hook: "prerouting", Priority: -100, Policy: "accept", Rules: entryRules(c)},
		{Name: "output" + v, Type: "nat", Hook: "output", Priority: -100, Policy: "accept", Rules: entryRules(c)},
		{Name: "postrouting" + v, Type: "nat", Hook: "postrouting", Priority: 99, Policy: "accept", Rules: texts(
			fmt.Sprintf("meta mark & 0x%08x != 0x%08x return", bit, bit),
			fmt.Sprintf("meta mark set meta mark & 0x%08x", ^bit),
			"ip saddr 127.0.0.0/8 masquerade",
			"ip daddr @all4"+v+" masquerade",
			"ip6 daddr @all6"+v+" masquerade",
			"ip saddr . ip daddr @self4"+v+" masquerade",
			"ip6 saddr . ip6 daddr @self6"+v+" masquerade",
			"iifname . ip daddr @hairpin4"+v+" masquerade",
			"iifname . ip6 daddr @hairpin6"+v+" masquerade",
		)},
	}
	return t
}

// entryRules returns the rules that send packets for an address of the node, if they fulfill the conditions, to the
// maps.
func entryRules(c portmapConf) []state.NftRule {
	to := "fib daddr type local jump hostports" + variant(c)
	v4, v6 := conditions(c.ConditionsV4), conditions(c.ConditionsV6)
	if len(v4)+len(v6) == 0 {
		return texts(to)
	}
	return texts(
		strings.Join(append(append([]string{"meta nfproto ipv4"}, v4...), to), " "),
		strings.Join(append(append([]string{"meta nfproto ipv6"}, v6...), to), " "))
}

func texts(lines ...string) []state.NftRule {
	out := make([]state.NftRule, len(lines))
	for i, line := range lines {
		out[i].Text = line
	}
	return out
}

// TakenPort returns the port of the node that an element of weft's table maps; false for other tables.
func TakenPort(table string, key []string) (port string, ok bool) {
	if table != "weft_hostports" || len(key) < 2 {
		return "", false
	}
	port = key[len(key)-1] + "/" + key[len(key)-2]
	if len(key) == 3 {
		port += " at " + key[0]
	}
	return port, true
}
