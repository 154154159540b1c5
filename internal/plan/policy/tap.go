// SPDX-License-Identifier: Apache-2.0

package policy

import "github.com/weft-net/weft/internal/state"

// A guest on a macvtap has a wire that no hook of IP sees, in no namespace: its frames are judged where they leave the
// macvtap and where they come to it, in a table of the family netdev in the pod's namespace, whose chains and sets of
// policies are those of any other place. The family tracks no connections. So the rules themselves remember, by sets
// whose elements fade, who has begun what:
//
//	begun4/out  what the guest has begun and was allowed to, until it is answered; the kernel judges its next packet anew
//	known4/out  of that, what was answered; nothing of it is asked again
//	rest4/out   the same of protocols without ports
//	begun4/in … what others have begun
//	parts4      packets whose first fragment was let through
//
// A flow is written as its first packet was. Sets with 6 are IPv6's.

// How long flows are remembered: unanswered, answered and living, ended. They are the kernel's usual times, but for a
// day rather than five.
const (
	askedTCP, livingTCP, endedTCP = "2m", "1d", "2m"
	askedUDP, livingUDP           = "30s", "3m"
	askedPing, livingRest         = "30s", "10m"
	partsTime                     = "30s"
)

// How much a tap's sets hold: more is not remembered, and so not answered.
const mostFlows, mostParts, mostRest = 65536, 4096, 1024

// tapMemory are the chains of a tap's table that remember.
func tapMemory() []state.Chain {
	var out []state.Chain
	for _, dir := range directions() {
		out = append(out, state.Chain{Name: "begin" + dir.suffix(), Rules: rulesOf(
			"meta protocol ip goto begin4"+dir.suffix(), "meta protocol ip6 goto begin6"+dir.suffix(), "accept")})
		for _, six := range []bool{false, true} {
			out = append(out, memory{dir, six}.chains()...)
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

// tapPreamble lets through what on a wire is not IP's, leases of addresses, and what is remembered. What bears a tag
// cannot be judged.
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

// memory is what the rules remember of packets of a family in a direction.
type memory struct {
	dir direction
	six bool
}

// name is that of a chain or set; other is that of who answers.
func (m memory) name(word string) string { return word + family(m.six) + m.dir.suffix() }

func (m memory) other(word string) string { return memory{1 - m.dir, m.six}.name(word) }

// flow is a packet's, as it is or turned round. Both ports of a ping are its number.
func (m memory) flow(back bool, ports ...string) string {
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

func (m memory) ping() (id, flow, back string) {
	if id = "icmp id"; m.six {
		id = "icmpv6 id"
	}
	return id, m.flow(false, id, id), m.flow(true, id, id)
}

func (m memory) rest(back bool) string {
	if back {
		return "meta l4proto . " + ip(m.six) + " daddr . " + ip(m.six) + " saddr"
	}
	return "meta l4proto . " + ip(m.six) + " saddr . " + ip(m.six) + " daddr"
}

// chains are the chains that let through what is known, and that remember what begins.
func (m memory) chains() []state.Chain {
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
		"meta l4proto @told accept", update("@"+m.name("rest"), m.rest(false), livingRest)[1:], "accept",
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

// echo is a ping's question or answer.
func (m memory) echo(answer bool) string {
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

// errorTypes are the messages about a packet that quote it.
func errorTypes(six bool) []string {
	if six {
		return []string{"icmpv6 type 1", "icmpv6 type 2", "icmpv6 type 3", "icmpv6 type 4"}
	}
	return []string{"icmp type 3", "icmp type 11", "icmp type 12"}
}

// errors let errors through that quote a packet of a known flow, which went the other way. Of a quoted IPv4 packet with
// options and an IPv6 packet with further heads nothing is known.
func (m memory) errors() []string {
	proto, from, to, ports, ping := "@th,136,8", "@th,160,32", "@th,192,32",
		[]string{"@th,224,16", "@th,240,16"}, "@th,256,16"
	var out []string
	check := ""
	if m.six {
		proto, from, to, ports, ping = "@th,112,8", "@th,128,128", "@th,256,128",
			[]string{"@th,384,16", "@th,400,16"}, "@th,416,16"
	} else {
		check = "@th,64,8 69 " // IPv4, five words of head
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

// partOf is what the fragments of one packet have in common, firstPart and laterPart are true of the first one and of
// the others. Of IPv6 packets with other heads before the fragment's nothing is known.
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

// flowHead is a set that remembers flows.
func flowHead(name string, six bool) state.Set {
	addr := "ipv" + family(six) + "_addr"
	return state.Set{
		Name: name, Key: "inet_proto . " + addr + " . inet_service . " + addr + " . inet_service", Learns: mostFlows,
	}
}

// tapSets are the sets that remember.
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
			m := memory{dir, six}
			out = append(out, flowHead(m.name("begun"), six), flowHead(m.name("known"), six),
				state.Set{Name: m.name("rest"), Key: "inet_proto . " + addr + " . " + addr, Learns: mostRest})
		}
		out = append(out, state.Set{
			Name: "parts" + family(six), Key: "inet_proto . " + addr + " . " + id + " . " + addr, Learns: mostParts,
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
