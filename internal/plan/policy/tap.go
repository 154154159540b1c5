// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/weft-net/weft/internal/state"

// The frames of a guest on a macvtap pass no IP hook of any namespace: they are filtered where they leave the macvtap
// and where they enter it, in a table of the family netdev in the pod's namespace, whose chains and sets of policies
// are the same as in any other place. The family has no connection tracking. So the rules track flows themselves, in
// sets whose elements time out:
//
//	begun4/out  allowed flows of the guest without a reply yet; policy is evaluated again for their next packet
//	known4/out  those with a reply; policy is not evaluated again
//	rest4/out   the same for protocols without ports
//	begun4/in … flows to the guest
//	parts4      packets whose first fragment was allowed
//
// A flow is stored as in its first packet. Sets with 6 are for IPv6.

// The timeouts of flows: without reply, established, closed. They are conntrack's defaults, except one day instead of
// five.
const (
	askedTCP, livingTCP, endedTCP = "2m", "1d", "2m"
	askedUDP, livingUDP           = "30s", "3m"
	askedPing, livingRest         = "30s", "10m"
	partsTime                     = "30s"
)

// The sizes of a tap's sets: further flows are not tracked, and so their replies are dropped.
const maxFlows, maxFragments, maxPortless = 65536, 4096, 1024

// tapTrackingChains returns the chains of a tap's table that track flows.
func tapTrackingChains() []state.Chain {
	var out []state.Chain
	for _, dir := range directions() {
		out = append(out, state.Chain{Name: "begin" + dir.suffix(), Rules: rulesOf(
			"meta protocol ip goto begin4"+dir.suffix(), "meta protocol ip6 goto begin6"+dir.suffix(), "accept")})
		for _, six := range []bool{false, true} {
			out = append(out, flowTracking{dir, six}.chains()...)
		}
	}
	for _, six := range []bool{false, true} {
		out = append(out, state.Chain{
			Name:  "pass" + family(six),
			Rules: rulesOf(firstPart(six)+" update @parts"+family(six)+" { "+partOf(six)+" timeout "+partsTime+" }", "accept"),
		})
	}
	return out
}

// tapPreamble accepts frames that are not IP, DHCP, and tracked flows. Frames with a VLAN tag cannot be filtered.
func tapPreamble(dir direction) []string {
	lease := "udp sport 68 udp dport 67 accept"
	if dir == ingress {
		lease = "udp sport 67 udp dport 68 accept"
	}
	return []string{
		"ether type 8021q drop", "ether type 8021ad drop", "meta protocol arp accept", "meta protocol rarp accept", lease,
		"meta protocol ip jump known4" + dir.suffix(), "meta protocol ip6 jump known6" + dir.suffix(),
	}
}

// flowTracking are the rules that track flows of a family in a direction.
type flowTracking struct {
	dir direction
	six bool
}

// name returns the name of a chain or set; other that of the reply direction.
func (m flowTracking) name(word string) string { return word + family(m.six) + m.dir.suffix() }

func (m flowTracking) other(word string) string { return flowTracking{1 - m.dir, m.six}.name(word) }

// flow returns the key of a packet's flow, as it is or reversed. Both ports of a ping are its identifier.
func (m flowTracking) flow(back bool, ports ...string) string {
	from, to := ip(m.six)+" saddr", ip(m.six)+" daddr"
	if len(ports) == 0 {
		ports = []string{"th sport", "th dport"}
	}
	if back {
		from, to = to, from
		ports = []string{ports[1], ports[0]}
	}
	return "meta l4proto . " + from + " . " + ports[0] + " . " + to + " . " + ports[1]
}

func (m flowTracking) ping() (id, flow, back string) {
	if id = "icmp id"; m.six {
		id = "icmpv6 id"
	}
	return id, m.flow(false, id, id), m.flow(true, id, id)
}

func (m flowTracking) rest(back bool) string {
	if back {
		return "meta l4proto . " + ip(m.six) + " daddr . " + ip(m.six) + " saddr"
	}
	return "meta l4proto . " + ip(m.six) + " saddr . " + ip(m.six) + " daddr"
}

// chains returns the chains that accept tracked flows, and that add new ones.
func (m flowTracking) chains() []state.Chain {
	there, back := m.flow(false), m.flow(true)
	own, others, asked, answers := "@"+m.name("known"), "@"+m.other("known"), "@"+m.name("begun"), "@"+m.other("begun")
	update := func(set, flow, time string) string {
		return " update " + set + " { " + flow + " timeout " + time + " }"
	}
	pass := " goto pass" + family(m.six)
	tcp := []string{
		"tcp flags fin,rst " + there + " " + own + update(asked, there, endedTCP) + " delete " + own + " { " +
			there + " }" + pass,
		"tcp flags fin,rst " + back + " " + others + update(answers, back, endedTCP) + " delete " + others + " { " +
			back + " }" + pass,
		there + " " + own + update(own, there, livingTCP) + pass,
		back + " " + others + update(others, back, livingTCP) + pass,
		"tcp flags fin,rst " + back + " " + answers + update(answers, back, endedTCP) + pass,
		"tcp flags syn,psh " + back + " " + answers + update(others, back, livingTCP) + pass,
		back + " " + answers + update(answers, back, endedTCP) + pass,
	}
	ported := []string{
		there + " " + own + update(own, there, livingUDP) + pass,
		back + " " + others + update(others, back, livingUDP) + pass,
		back + " " + answers + update(others, back, livingUDP) + pass,
	}
	_, ping, pong := m.ping()
	begin := []string{
		"meta l4proto tcp" + update(asked, there, askedTCP) + pass,
		"meta l4proto @ported" + update(asked, there, askedUDP) + pass,
		m.echo(false) + update(asked, ping, askedPing) + pass,
		"meta l4proto @told accept", // glossary: the set's name in the kernel
		update("@"+m.name("rest"), m.rest(false), livingRest)[1:],
		"accept",
	}
	known := append([]string{laterPart(m.six) + " " + partOf(m.six) + " @parts" + family(m.six) + " accept"},
		"meta l4proto tcp goto "+m.name("tcp"), "meta l4proto @ported goto "+m.name("ported"),
		m.echo(true)+" "+pong+" "+answers+" accept")
	for _, kind := range errorTypes(m.six) {
		known = append(known, kind+" goto "+m.name("error"))
	}
	known = append(known, m.rest(false)+" @"+m.name("rest")+" accept", m.rest(true)+" @"+m.other("rest")+" accept")
	return []state.Chain{
		{Name: m.name("known"), Rules: rulesOf(known...)},
		{Name: m.name("tcp"), Rules: rulesOf(tcp...)},
		{Name: m.name("ported"), Rules: rulesOf(ported...)},
		{Name: m.name("error"), Rules: rulesOf(m.errors()...)},
		{Name: m.name("begin"), Rules: rulesOf(begin...)},
	}
}

// echo matches an echo request or reply.
func (m flowTracking) echo(answer bool) string {
	switch {
	case m.six && answer:
		return "icmpv6 type 129"
	case m.six:
		return "icmpv6 type 128"
	case answer:
		return "icmp type 0"
	}
	return "icmp type 8"
}

// errorTypes returns the ICMP errors that quote a packet.
func errorTypes(six bool) []string {
	if six {
		return []string{"icmpv6 type 1", "icmpv6 type 2", "icmpv6 type 3", "icmpv6 type 4"}
	}
	return []string{"icmp type 3", "icmp type 11", "icmp type 12"}
}

// errors returns rules that accept ICMP errors that quote a packet of a tracked flow in the other direction. Quoted
// IPv4 packets with options and IPv6 packets with extension headers do not match.
func (m flowTracking) errors() []string {
	proto, from, to, ports, ping := "@th,136,8", "@th,160,32", "@th,192,32",
		[]string{"@th,224,16", "@th,240,16"}, "@th,256,16"
	var out []string
	check := ""
	if m.six {
		proto, from, to, ports, ping = "@th,112,8", "@th,128,128", "@th,256,128",
			[]string{"@th,384,16", "@th,400,16"}, "@th,416,16"
	} else {
		check = "@th,64,8 69 " // IPv4, a header of five words
	}
	there := proto + " . " + from + " . " + ports[0] + " . " + to + " . " + ports[1]
	back := proto + " . " + to + " . " + ports[1] + " . " + from + " . " + ports[0]
	for _, set := range []string{m.other("begun"), m.other("known")} {
		out = append(out, check+there+" @"+set+" accept")
	}
	for _, set := range []string{m.name("begun"), m.name("known")} {
		out = append(out, check+back+" @"+set+" accept")
	}
	icmp := " 1 "
	if m.six {
		icmp = " 58 "
	}
	return append(out, check+proto+icmp+proto+" . "+from+" . "+ping+" . "+to+" . "+ping+" @"+m.other("begun")+" accept",
		check+proto+" . "+from+" . "+to+" @"+m.other("rest")+" accept",
		check+proto+" . "+to+" . "+from+" @"+m.name("rest")+" accept")
}

// partOf is the key of the fragments of one packet; firstPart and laterPart match the first one and the others. IPv6
// packets with other extension headers before the fragment header do not match.
func partOf(six bool) string {
	if six {
		return "@nh,320,8 . ip6 saddr . @nh,352,32 . ip6 daddr"
	}
	return "ip protocol . ip saddr . ip id . ip daddr"
}

func firstPart(six bool) string {
	if six {
		return "ip6 nexthdr 44 @nh,336,16 & 65529 == 1"
	}
	return "ip frag-off & 16383 == 8192"
}

func laterPart(six bool) string {
	if six {
		return "ip6 nexthdr 44 @nh,336,16 & 65528 != 0"
	}
	return "ip frag-off & 8191 != 0"
}

// flowHead returns a set for flows, without elements.
func flowHead(name string, six bool) state.Set {
	addr := "ipv" + family(six) + "_addr"
	return state.Set{
		Name: name, Key: "inet_proto . " + addr + " . inet_service . " + addr + " . inet_service", DynamicSize: maxFlows,
	}
}

// tapSets returns the sets for flow tracking.
func tapSets() []state.Set {
	out := []state.Set{
		{Name: "ported", Key: "inet_proto", Elements: protos("udp", "sctp", "dccp", "udplite")},
		{Name: "told", Key: "inet_proto", Elements: protos("icmp", "ipv6-icmp")},
	}
	for _, six := range []bool{false, true} {
		addr, id := "ipv"+family(six)+"_addr", "inet_service"
		if six {
			id = "mark"
		}
		for _, dir := range directions() {
			m := flowTracking{dir, six}
			out = append(out, flowHead(m.name("begun"), six), flowHead(m.name("known"), six),
				state.Set{Name: m.name("rest"), Key: "inet_proto . " + addr + " . " + addr, DynamicSize: maxPortless})
		}
		out = append(out, state.Set{
			Name: "parts" + family(six), Key: "inet_proto . " + addr + " . " + id + " . " + addr, DynamicSize: maxFragments,
		})
	}
	return out
}

func protos(names ...string) []state.Element {
	var out []state.Element
	for _, n := range names {
		out = append(out, state.Element{Key: []string{n}})
	}
	return out
}

func rulesOf(texts ...string) []state.NftRule {
	var out []state.NftRule
	for _, text := range texts {
		out = append(out, state.NftRule{Text: text})
	}
	return out
}
