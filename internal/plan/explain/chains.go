// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// truth is whether something holds, with a third value where that cannot be decided.
type truth int8

const (
	no truth = iota
	maybe
	yes
)

func (t truth) not() truth { return yes - t }

// packet is what rules match. Zero fields are not known.
type packet struct {
	in, out      string
	src, dst     netip.Addr
	protocol     string // tcp, udp, sctp, icmp, ipv6-icmp
	sport, dport int    // or ephemeral
	length       int
	icmpType     int
	state        string // of conntrack: new, established, untracked
}

// outcome is what a hook's chains do with a packet.
type outcome struct {
	// dropped: no, maybe (rules that cannot be decided might drop it) or yes.
	dropped truth
	// rejected: the sender gets an error.
	rejected bool
	// by is the rule or policy that drops the packet, or might: "chain inet fw forward, rule 4: udp dport 8472 drop".
	by string
	// masquerade, notrack and rewrite are rules that (might) do that; rewrite changes the packet's header.
	masquerade, notrack, rewrite string
}

// depth limits jumps; the kernel's limit is 16 too (NFT_JUMP_STACK_SIZE).
const depth = 16

// meets reports whether a packet meets a base chain at a hook: "ingress" and "egress" of its interfaces, "bridge
// prerouting" and so on in a bridge, and those of IP.
func (p packet) meets(c Chain, hook string) bool {
	inBridge, bridge := strings.CutPrefix(hook, "bridge ")
	switch {
	case bridge:
		return c.Family == "bridge" && c.Hook == inBridge
	case hook == "ingress" || hook == "egress":
		device := p.in
		if hook == "egress" {
			device = p.out
		}
		return c.Hook == hook && slices.ContainsFunc(c.Devices, func(d string) bool { return name(device, d) == yes })
	}
	return c.Hook == hook && c.Family != "bridge" && c.Family != "netdev"
}

// run evaluates the chains of a hook in the order of their priorities.
func run(r Ruleset, hook string, p packet) outcome {
	var out outcome
	for _, name := range r.Unreadable { // tables of iptables
		if !strings.HasPrefix(hook, "bridge ") && hook != "ingress" && hook != "egress" {
			out.dropped, out.by = maybe, name+", which cannot be read"
		}
	}
	var chains []Chain
	for _, c := range r.Chains {
		// Packets of connections that are known do not meet chains of type nat.
		if p.meets(c, hook) && (c.Type != "nat" || p.state != "established") {
			chains = append(chains, c)
		}
	}
	slices.SortStableFunc(chains, func(a, b Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, c := range chains {
		e := evaluation{set: r, p: p, out: &out}
		end := e.chain(c, yes, 0)
		if end == running && c.Policy == "drop" {
			e.drop(e.sure, fmt.Sprintf("policy of chain %s is drop", c), false)
		}
		if out.dropped == yes {
			break
		}
	}
	return out
}

// ending is how a chain ended.
type ending int

const (
	running ending = iota // its end was reached
	ended                 // a verdict
)

// evaluation is a packet's way through one base chain.
type evaluation struct {
	set Ruleset
	p   packet
	out *outcome
	// sure is maybe after a rule that might have ended the chain.
	sure  truth
	begun bool
}

// chain evaluates a chain that is reached with that probability.
func (e *evaluation) chain(c Chain, reached truth, level int) ending {
	if !e.begun {
		e.begun, e.sure = true, yes
	}
	for _, r := range c.Rules {
		matched, verdict := e.match(r)
		if matched == no {
			continue
		}
		sure := min(matched, reached, e.sure)
		end, returned := e.act(c, r, verdict, sure, level)
		if end == ended {
			return ended
		}
		switch {
		case returned && sure == yes:
			return running
		case returned: // the following rules may be left out
			e.sure = maybe
		}
	}
	return running
}

// act carries out the verdict of a rule.
func (e *evaluation) act(c Chain, r Rule, verdict []string, sure truth, level int) (end ending, returned bool) {
	by := fmt.Sprintf("chain %s, rule with handle %d: %s", c, r.Handle, r.Text)
	word := ""
	if len(verdict) > 0 {
		word = verdict[0]
	}
	switch word {
	case "accept", "masquerade", "snat", "dnat", "redirect":
		switch word {
		case "masquerade", "snat":
			e.out.masquerade = by
		case "dnat", "redirect":
			if sure == yes {
				e.drop(maybe, by+" (the packet goes to another destination)", false)
			}
		}
		if sure == yes {
			return ended, false
		}
		e.sure = maybe
	case "drop", "reject":
		e.drop(sure, by, word == "reject")
		if sure == yes {
			return ended, false
		}
		e.sure = maybe
	case "return":
		return running, true
	case "jump", "goto":
		if len(verdict) < 2 || level >= depth {
			break
		}
		i := slices.IndexFunc(e.set.Chains, func(o Chain) bool {
			return o.Family == c.Family && o.Table == c.Table && o.Name == verdict[1]
		})
		if i < 0 {
			e.drop(maybe, by, false)
			break
		}
		if e.chain(e.set.Chains[i], sure, level+1) == ended {
			return ended, false
		}
		return running, word == "goto"
	case "notrack":
		e.out.notrack = by
	case "set", "rewrite":
		e.out.rewrite = by
	case "queue":
		e.drop(maybe, by+" (a program decides)", false)
	case "vmap", "decides":
		e.drop(maybe, by+" (what it does cannot be read)", false)
		e.sure = maybe
	}
	return running, false
}

// drop records that the packet is dropped, or might be. The first certain one stays.
func (e *evaluation) drop(sure truth, by string, rejected bool) {
	if sure > e.out.dropped {
		e.out.dropped, e.out.by, e.out.rejected = sure, by, rejected
	}
}

// match reports whether a rule matches, and returns the words of its verdict.
func (e *evaluation) match(r Rule) (matched truth, verdict []string) {
	w := &words{list: split(r.Text)}
	matched = yes
	if r.Partial {
		matched = maybe
	}
	for !w.end() {
		word := w.next()
		switch word {
		case "…":
			matched = min(matched, maybe)
		case "continue":
			return matched, nil
		default:
			if slices.Contains(verdicts(), word) {
				return matched, append([]string{word}, w.rest()...)
			}
			t, set := e.clause(word, w)
			if set {
				verdict = []string{"set"}
			}
			matched = min(matched, t)
		}
		if matched == no {
			return no, nil
		}
	}
	return matched, verdict
}

// clause evaluates one condition. set reports that it is a statement that changes the packet.
func (e *evaluation) clause(word string, w *words) (t truth, set bool) {
	key := word
	switch word {
	case "counter":
		if w.peek() == "packets" {
			w.skip(4)
		}
		return yes, false
	case "comment":
		w.skip(1)
		return yes, false
	case "log", "limit", "quota":
		if w.skipToVerdict(); word == "log" {
			return yes, false
		}
		return maybe, false
	case "ip", "ip6", "tcp", "udp", "sctp", "th", "meta", "ct", "icmp", "icmpv6", "ether", "fib", "socket", "rt":
		key += " " + w.next()
	case "iifname", "oifname", "iif", "oif":
	default:
		w.skipToVerdict()
		return maybe, false
	}
	switch w.peek() {
	case "set": // a statement
		w.skipToVerdict()
		_, field, _ := strings.Cut(key, " ")
		harmless := slices.Contains(
			[]string{"mark", "dscp", "ecn", "ttl", "hoplimit", "priority", "pkttype", "nftrace"},
			field,
		)
		return yes, !harmless && slices.Contains([]string{"ip", "ip6", "tcp", "udp", "sctp", "th"}, word)
	case ".", "vmap", "&", "^", "|": // a concatenation, a map of verdicts, an operation
		w.skipToVerdict()
		return maybe, false
	}
	operator := "=="
	switch w.peek() {
	case "!=", "==", "<", ">", "<=", ">=":
		operator = w.next()
	}
	values := w.values()
	t = e.compare(key, values, operator)
	if operator == "!=" {
		t = t.not()
	}
	return min(t, e.applies(key)), false
}

// applies reports whether the packet has the header of a field at all: "tcp dport != 22" does not match UDP.
func (e *evaluation) applies(key string) truth {
	header, _, _ := strings.Cut(key, " ")
	switch header {
	case "tcp", "udp", "sctp":
		return is(header == e.p.protocol)
	case "ip":
		return is(e.p.dst.Is4())
	case "ip6":
		return is(e.p.dst.Is6())
	case "icmp":
		return is(e.p.protocol == "icmp")
	case "icmpv6":
		return is(e.p.protocol == "ipv6-icmp")
	}
	return yes
}

func is(v bool) truth {
	if v {
		return yes
	}
	return no
}

// compare reports whether a field has one of the values, or compares by an operator.
func (e *evaluation) compare(key string, values []string, operator string) truth {
	one := func(text string) truth { return maybe }
	switch key {
	case "iifname", "iif", "meta iifname", "meta iif":
		one = func(v string) truth { return name(e.p.in, v) }
	case "oifname", "oif", "meta oifname", "meta oif":
		one = func(v string) truth { return name(e.p.out, v) }
	case "ip saddr", "ip6 saddr":
		one = func(v string) truth { return inPrefix(e.p.src, v) }
	case "ip daddr", "ip6 daddr":
		one = func(v string) truth { return inPrefix(e.p.dst, v) }
	case "ip protocol", "ip6 nexthdr", "meta l4proto":
		one = func(v string) truth { return is(v == e.p.protocol || v == protocolNumber(e.p.protocol)) }
	case "meta protocol", "ether type":
		one = func(v string) truth { return is(v == "ip" && e.p.dst.Is4() || v == "ip6" && e.p.dst.Is6()) }
	case "meta nfproto":
		one = func(v string) truth { return is(v == "ipv4" && e.p.dst.Is4() || v == "ipv6" && e.p.dst.Is6()) }
	case "tcp dport", "udp dport", "sctp dport", "th dport":
		one = func(v string) truth { return number(e.p.dport, v, operator) }
	case "tcp sport", "udp sport", "sctp sport", "th sport":
		one = func(v string) truth { return number(e.p.sport, v, operator) }
	case "icmp type", "icmpv6 type":
		one = func(v string) truth {
			switch v {
			case "echo-request":
				v = map[string]string{"icmp": "8", "ipv6-icmp": "128"}[e.p.protocol]
			case "echo-reply":
				v = map[string]string{"icmp": "0", "ipv6-icmp": "129"}[e.p.protocol]
			}
			return compareNumber(e.p.icmpType, v, operator)
		}
	case "meta length":
		one = func(v string) truth { return number(e.p.length, v, operator) }
	case "ct state":
		one = func(v string) truth { return e.state(v) }
	}
	out := no
	for _, v := range values {
		out = max(out, one(v))
	}
	return out
}

func (e *evaluation) state(v string) truth {
	if e.p.state == "" {
		return maybe
	}
	return is(slices.Contains(strings.Split(v, ","), e.p.state))
}

// name compares an interface with a name or a pattern ("cali*").
func name(have, want string) truth {
	switch {
	case have == "":
		return no
	case strings.HasPrefix(want, "@"):
		return maybe
	}
	if prefix, ok := strings.CutSuffix(want, "*"); ok {
		return is(strings.HasPrefix(have, prefix))
	}
	return is(have == want)
}

func inPrefix(a netip.Addr, v string) truth {
	if !a.IsValid() {
		return maybe
	}
	if p, err := netip.ParsePrefix(v); err == nil {
		return is(p.Contains(a))
	}
	if from, to, ok := strings.Cut(v, "-"); ok {
		lo, err := netip.ParseAddr(from)
		hi, err2 := netip.ParseAddr(to)
		if err == nil && err2 == nil {
			return is(lo.Compare(a) <= 0 && a.Compare(hi) <= 0)
		}
	}
	if b, err := netip.ParseAddr(v); err == nil {
		return is(a == b)
	}
	return maybe
}

// ephemeral stands for the port of a client, one of net.ipv4.ip_local_port_range, which is not known.
const ephemeral, firstEphemeral = -1, 32768

// number compares a number, 0: unknown, with a value or a range.
func number(have int, v, operator string) truth {
	if have == 0 {
		return maybe
	}
	return compareNumber(have, v, operator)
}

// compareNumber is number for one that is known.
func compareNumber(have int, v, operator string) truth {
	from, to, isRange := strings.Cut(v, "-")
	lo, err := parseNumber(from)
	if err != nil {
		return maybe
	}
	hi := lo
	if isRange {
		if hi, err = parseNumber(to); err != nil {
			return maybe
		}
	}
	if have == ephemeral {
		if isRange && hi >= firstEphemeral || operator != "==" && operator != "!=" {
			return maybe
		}
		return no
	}
	switch operator {
	case "<":
		return is(have < lo)
	case ">":
		return is(have > lo)
	case "<=":
		return is(have <= lo)
	case ">=":
		return is(have >= lo)
	}
	return is(lo <= have && have <= hi)
}
