// SPDX-License-Identifier: Apache-2.0

package oracletest_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// frame is a packet at a hook, the first of its connection.
type frame struct {
	hook, in, out string
	src, dst      netip.Addr
	proto         string // tcp, udp, sctp, icmp, ipv6-icmp
	port          int
	// icmp is the ICMP type.
	icmp int
	// Of a packet that host endpoints see: it is not tracked, its destination was translated, a process of the node has sent
	// it, and its mark.
	untracked, dnat, local bool
	mark                   uint32
}

func (f frame) String() string {
	return fmt.Sprintf("%s %s>%s %s>%s %s/%d", f.hook, f.in, f.out, f.src, f.dst, f.proto, f.port)
}

// passes evaluates the base chains of a table at the frame's hook. An accept ends only its own base chain.
func passes(table state.Table, f frame) (bool, error) { return crosses(table, &f) }

// crosses is passes that keeps what the rules change of the packet.
func crosses(table state.Table, f *frame) (bool, error) {
	var bases []state.Chain
	for _, c := range table.Chains {
		if c.Hook == f.hook {
			bases = append(bases, c)
		}
	}
	slices.SortStableFunc(bases, func(a, b state.Chain) int { return a.Priority - b.Priority })
	for _, c := range bases {
		w := walker{table: table, f: *f}
		verdict, err := w.chain(c.Name, 0)
		*f = w.f
		if err != nil {
			return false, fmt.Errorf("%s: %w", f, err)
		}
		if verdict == "" {
			verdict = c.Policy
		}
		if verdict == "drop" {
			return false, nil
		}
	}
	return true, nil
}

type walker struct {
	table state.Table
	f     frame
}

// chain evaluates a chain: accept, drop, or "" at its end.
func (w *walker) chain(name string, depth int) (string, error) {
	if depth > 16 {
		return "", fmt.Errorf("chain %s: the kernel allows 16 jumps", name)
	}
	i := slices.IndexFunc(w.table.Chains, func(c state.Chain) bool { return c.Name == name })
	if i < 0 {
		return "", fmt.Errorf("there is no chain %s", name)
	}
	for _, r := range w.table.Chains[i].Rules {
		verdict, err := w.rule(r.Text)
		if err != nil {
			return "", fmt.Errorf("chain %s: %q: %w", name, r.Text, err)
		}
		word, to, _ := strings.Cut(verdict, " ")
		switch word {
		case "accept", "drop":
			return word, nil
		case "return":
			return "", nil
		case "goto":
			return w.chain(to, depth+1)
		case "jump":
			if v, err := w.chain(to, depth+1); v != "" || err != nil {
				return v, err
			}
		}
	}
	return "", nil
}

// rule returns the verdict of a rule, or "" if it does not match or has none.
func (w *walker) rule(text string) (string, error) {
	tok := words(text)
	for len(tok) > 0 {
		if len(tok) >= 4 && strings.Join(tok[:3], " ") == "meta mark set" {
			if tok[3] != "meta" { // of what is dropped
				tok = tok[4:]
				continue
			}
			bit, err := strconv.ParseUint(tok[6], 0, 32) // meta mark set meta mark | BIT
			if err != nil || tok[5] != "|" {
				return "", fmt.Errorf("the evaluator does not support %q: %w", tok, err)
			}
			w.f.mark |= uint32(bit)
			tok = tok[7:]
			continue
		}
		if len(tok) >= 6 && strings.Join(tok[:3], " ") == "meta mark &" { // meta mark & BIT == BIT
			bit, err := strconv.ParseUint(tok[3], 0, 32)
			if err != nil || w.f.mark&uint32(bit) == 0 {
				return "", err
			}
			tok = tok[6:]
			continue
		}
		switch tok[0] {
		case "accept", "drop", "return":
			return tok[0], nil
		case "jump", "goto":
			return tok[0] + " " + tok[1], nil
		case "counter":
			tok = tok[1:]
		case "notrack":
			w.f.untracked = true
			tok = tok[1:]
		case "limit": // limit rate N/second [burst N packets]: the first packet is within it
			tok = tok[3:]
			if len(tok) > 0 && tok[0] == "burst" {
				tok = tok[3:]
			}
		case "log": // log prefix "…" [group N]
			tok = tok[3:]
			if len(tok) > 0 && tok[0] == "group" {
				tok = tok[2:]
			}
		default:
			rest, verdict, matched, err := w.match(tok)
			if err != nil || !matched || verdict != "" {
				return verdict, err
			}
			tok = rest
		}
	}
	return "", nil
}

// words splits a rule; a quoted string is one word.
func words(text string) []string {
	var out []string
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// value is a field of the frame; ok is false if the frame does not have it.
type value struct {
	ok   bool
	name string
	num  int
	addr netip.Addr
}

func (w *walker) match(tok []string) (rest []string, verdict string, matched bool, err error) {
	var values []value
	for {
		v, used, err := w.field(tok)
		if err != nil {
			return nil, "", false, err
		}
		values, tok = append(values, v), tok[used:]
		if len(tok) == 0 || tok[0] != "." {
			break
		}
		tok = tok[1:]
	}
	if len(tok) == 0 {
		return nil, "", false, fmt.Errorf("a field without a value")
	}
	if slices.ContainsFunc(values, func(v value) bool { return !v.ok }) { // nft matches the protocol first
		return nil, "", false, nil
	}
	switch tok[0] {
	case "vmap":
		e, err := w.lookup(strings.TrimPrefix(tok[1], "@"), values)
		if err != nil || e == nil {
			return tok[2:], "", true, err
		}
		return nil, strings.Join(e.Val, " "), true, nil
	case "!=":
		matched, err = w.compare(tok[1], values)
		return tok[2:], "", !matched, err
	}
	matched, err = w.compare(tok[0], values)
	return tok[1:], "", matched, err
}

func (w *walker) compare(text string, values []value) (bool, error) {
	if set, is := strings.CutPrefix(text, "@"); is {
		e, err := w.lookup(set, values)
		return e != nil, err
	}
	return values[0].is(text)
}

// lookup finds the element of a set that contains all values.
func (w *walker) lookup(set string, values []value) (*state.Element, error) {
	i := slices.IndexFunc(w.table.Sets, func(s state.Set) bool { return s.Name == set })
	if i < 0 {
		return nil, fmt.Errorf("there is no set %s", set)
	}
	for n := range w.table.Sets[i].Elements {
		e := &w.table.Sets[i].Elements[n]
		if len(e.Key) != len(values) {
			return nil, fmt.Errorf("set %s: element %v has not %d parts", set, e.Key, len(values))
		}
		all := true
		for k, part := range e.Key {
			if !w.table.Sets[i].Interval && strings.ContainsAny(part, "/-") && values[k].addr.IsValid() {
				return nil, fmt.Errorf("set %s has no intervals: %s", set, part)
			}
			ok, err := values[k].is(part)
			if err != nil {
				return nil, err
			}
			all = all && ok
		}
		if all {
			return e, nil
		}
	}
	return nil, nil
}

// is reports whether the value is a literal, or in its range; lists are separated by commas.
func (v value) is(text string) (bool, error) {
	for one := range strings.SplitSeq(text, ",") {
		ok, err := v.isOne(one)
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

func (v value) isOne(text string) (bool, error) {
	from, to, is := strings.Cut(text, "-")
	switch {
	case v.addr.IsValid() && strings.Contains(text, "/"):
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(v.addr), err
	case v.addr.IsValid():
		if !is {
			to = from
		}
		a, err := netip.ParseAddr(from)
		if err != nil {
			return false, err
		}
		b, err := netip.ParseAddr(to)
		return err == nil && a.BitLen() == v.addr.BitLen() && a.Compare(v.addr) <= 0 && v.addr.Compare(b) <= 0, err
	case v.name != "":
		return v.name == strings.Trim(text, `"`), nil
	}
	if !is {
		to = from
	}
	a, err := strconv.Atoi(from)
	if err != nil {
		return false, err
	}
	b, err := strconv.Atoi(to)
	return err == nil && a <= v.num && v.num <= b, err
}

// field reads the field at the beginning of the words.
func (w *walker) field(tok []string) (value, int, error) {
	f, two := w.f, tok[0]
	if len(tok) > 1 {
		two += " " + tok[1]
	}
	ports := map[string]bool{
		"tcp": f.proto == "tcp", "udp": f.proto == "udp", "sctp": f.proto == "sctp",
		"th": f.proto == "tcp" || f.proto == "udp" || f.proto == "sctp",
	}
	switch {
	case tok[0] == "iifname":
		return value{ok: true, name: cmp.Or(f.in, " ")}, 1, nil
	case tok[0] == "oifname":
		return value{ok: true, name: cmp.Or(f.out, " ")}, 1, nil
	case two == "ct state":
		return value{ok: true, name: map[bool]string{true: "untracked", false: "new"}[f.untracked]}, 2, nil
	case two == "ct status":
		return value{ok: true, name: map[bool]string{true: "dnat", false: " "}[f.dnat]}, 2, nil
	case two == "fib saddr":
		return value{ok: true, name: map[bool]string{true: "local", false: "unicast"}[f.local]}, 3, nil
	case two == "ct direction":
		return value{ok: true, name: "original"}, 2, nil
	case two == "meta l4proto":
		return value{ok: true, name: f.proto}, 2, nil
	case two == "meta nfproto":
		return value{ok: true, name: map[bool]string{true: "ipv4", false: "ipv6"}[f.src.Is4()]}, 2, nil
	case two == "meta protocol":
		return value{ok: true, name: map[bool]string{true: "ip", false: "ip6"}[f.src.Is4()]}, 2, nil
	case two == "ip saddr" || two == "ip6 saddr":
		return value{ok: f.src.Is4() == (tok[0] == "ip"), addr: f.src}, 2, nil
	case two == "ip daddr" || two == "ip6 daddr":
		return value{ok: f.dst.Is4() == (tok[0] == "ip"), addr: f.dst}, 2, nil
	case two == "icmpv6 type":
		return value{ok: f.proto == "ipv6-icmp", num: f.icmp}, 2, nil
	case two == "icmp type":
		return value{ok: f.proto == "icmp", num: f.icmp}, 2, nil
	case two == "icmp code", two == "icmpv6 code":
		return value{ok: f.proto == map[string]string{"icmp": "icmp", "icmpv6": "ipv6-icmp"}[tok[0]]}, 2, nil
	case len(tok) > 1 && tok[1] == "dport":
		if matches, known := ports[tok[0]]; known {
			return value{ok: matches, num: f.port}, 2, nil
		}
	case len(tok) > 1 && tok[1] == "sport": // far from any port that policies name
		if matches, known := ports[tok[0]]; known {
			return value{ok: matches, num: 50000}, 2, nil
		}
	}
	return value{}, 0, fmt.Errorf("the evaluator does not support %q", two)
}
