// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// The reference plugin's chains.
const (
	dnatChain    = "CNI-HOSTPORT-DNAT"
	setMarkChain = "CNI-HOSTPORT-SETMARK"
	masqChain    = "CNI-HOSTPORT-MASQ"
)

// iptables returns the chains and rules of the reference plugin, in its order, for each family that the container has.
func (p portMap) iptables() []state.IPTables {
	var out []state.IPTables
	for _, t := range p.targets {
		out = append(out, p.nat(t))
	}
	return out
}

func (p portMap) nat(t target) state.IPTables {
	out := state.IPTables{IPv6: t.addr().Is6(), Table: "nat"}
	if p.conf.SNAT && p.conf.ExternalSetMarkChain == nil {
		out.Chains = append(out.Chains, p.marking()...)
	}
	own := state.IPChain{Name: ChainName("DN-", p.key)}
	for _, h := range t.ports {
		own.Rules = append(own.Rules, p.rules(t.net, h)...)
	}
	toOwn := state.IPChain{Name: dnatChain, Shared: true}
	for _, ports := range p.ports() {
		toOwn.Rules = append(toOwn.Rules, p.entry(own.Name, ports, out.IPv6))
	}
	out.Chains = append(out.Chains, own, toOwn)
	for _, from := range []string{"PREROUTING", "OUTPUT"} {
		out.Chains = append(out.Chains, state.IPChain{Name: from, Shared: true, Rules: []state.IPRule{
			{Text: "-m addrtype --dst-type LOCAL -j " + dnatChain, Shared: true},
		}})
	}
	return out
}

// marking returns the chains that mark connections, and masquerade marked ones.
func (p portMap) marking() []state.IPChain {
	bit := uint32(1) << p.conf.bit
	one := func(name, text string, first bool) state.IPChain {
		return state.IPChain{Name: name, Shared: true, Rules: []state.IPRule{{Text: text, Shared: true, First: first}}}
	}
	return []state.IPChain{
		one(setMarkChain, fmt.Sprintf("%s -j MARK --set-xmark %#x/%#x", commented("CNI portfwd masquerade mark"), bit, bit),
			false),
		one(masqChain, fmt.Sprintf("-m mark --mark %#x/%#x -j MASQUERADE", bit, bit), false),
		one("POSTROUTING", commented("CNI portfwd requiring masquerade")+" -j "+masqChain, true),
	}
}

// protoPorts are ports of one protocol, at most as many as one rule can match.
type protoPorts struct {
	proto string
	ports []string
}

// ports returns the ports of all mappings, of both families, by protocol.
func (p portMap) ports() []protoPorts {
	const most = 15 // the limit of the multiport match
	var out []protoPorts
	for _, proto := range []string{"sctp", "tcp", "udp"} {
		var all []string
		for _, h := range p.conf.mappings {
			if h.proto == proto {
				all = append(all, number(h.port))
			}
		}
		for part := range slices.Chunk(all, most) {
			out = append(out, protoPorts{proto, part})
		}
	}
	return out
}

// entry returns the rule that jumps to the container's own chain.
func (p portMap) entry(own string, ports protoPorts, v6 bool) state.IPRule {
	option := p.conf.ConditionsV4
	if v6 {
		option = p.conf.ConditionsV6
	}
	rule := state.IPRule{Text: fmt.Sprintf("-p %s %s -m multiport --dports %s", ports.proto,
		commented(trimmed(fmt.Sprintf(`dnat name: "%s" id: "%s"`, p.key.Network, p.key.ContainerID))),
		strings.Join(ports.ports, ","))}
	for _, w := range conditions(option) {
		rule.Text += " " + quotedArg(w)
		rule.Loose = true
	}
	rule.Text += " -j " + own
	return rule
}

// trimmed truncates a comment; the reference plugin truncates it one character too late.
func trimmed(comment string) string {
	const most = 255
	if len(comment) > most {
		comment = comment[:most-3] + "..."
	}
	return strings.ReplaceAll(comment, `"`, `\"`)
}

// quotedArg quotes an argument for iptables-restore.
func quotedArg(w string) string {
	if !strings.ContainsAny(w, " \t\"\\'") {
		return w
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(w) + `"`
}

// rules returns the rules that mark the connections that need SNAT, then redirect all to the container.
func (p portMap) rules(net netip.Prefix, h hostPort) []state.IPRule {
	at := ""
	if h.at.IsValid() {
		at = "-d " + full(h.at).String() + " "
	}
	match := fmt.Sprintf("%s-p %s -m %s --dport %d", at, h.proto, h.proto, h.port)
	mark := setMarkChain
	if p.conf.ExternalSetMarkChain != nil {
		mark = *p.conf.ExternalSetMarkChain
	}
	var out []state.IPRule
	add := func(format string, args ...any) { out = append(out, state.IPRule{Text: fmt.Sprintf(format, args...)}) }
	switch {
	case !p.conf.SNAT:
	case p.conf.MasqAll:
		add("%s -j %s", match, mark)
	default:
		from := "-s " + net.Masked().String() + " "
		if net.Bits() == 0 {
			from = ""
		}
		add("%s%s -j %s", from, match, mark)
		if net.Addr().Is4() {
			add("-s 127.0.0.1/32 %s -j %s", match, mark)
		}
	}
	add("%s -j DNAT --to-destination %s", match, netip.AddrPortFrom(net.Addr(), h.to))
	return out
}
