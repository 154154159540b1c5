// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// condition is a match of a rule of Calico's, which may have any number of them, on both ends, and negated ones.
type condition interface {
	// String is the nft text.
	String() string
	// sets are those that the condition uses.
	sets() []*setSpec
	// matches reports whether a flow matches, and by which element of which set.
	matches(k *walker, f Flow) (set, found string, ok bool)
}

// addrCondition matches an address; the direction of its match says which end's: egress is the destination's.
type addrCondition struct {
	addrMatch
	not bool
}

func (c addrCondition) String() string {
	text := c.addrMatch.String()
	if !c.not {
		return text
	}
	words := strings.SplitN(text, " ", 3)
	return words[0] + " " + words[1] + " != " + words[2]
}

func (c addrCondition) sets() []*setSpec { return setsOf(c.set) }

func (c addrCondition) matches(k *walker, f Flow) (set, found string, ok bool) {
	addr := f.Src
	if c.dir == egress {
		addr = f.Dst
	}
	if addr.Is6() != c.six {
		return "", "", false
	}
	switch {
	case c.set == nil:
		found, ok = c.prefix.String(), c.prefix.Contains(addr)
	default:
		set = c.set.name
		found, ok = k.lookup(c.set, element{addr: addr})
	}
	if c.not {
		return "", "", !ok
	}
	return set, found, ok
}

// portCondition matches a port: the destination's, or the source's.
type portCondition struct {
	portMatch
	source, not bool
}

func (c portCondition) String() string {
	text := c.portMatch.String()
	if c.source {
		text = strings.NewReplacer("daddr", "saddr", "dport", "sport").Replace(text)
	}
	if c.not {
		last := strings.LastIndexByte(text, ' ')
		text = text[:last] + " !=" + text[last:]
	}
	return text
}

func (c portCondition) sets() []*setSpec { return setsOf(c.set) }

// ephemeral is the source port of a flow of which it is not known: one that programs do not choose (RFC 6335, section 6).
const ephemeral = 50000

// impliesProtocol reports whether no packet of another protocol than the rule's matches.
func (c portCondition) impliesProtocol() bool { return !c.not || c.set == nil }

func (c portCondition) matches(k *walker, f Flow) (set, found string, ok bool) {
	e := element{f.Dst, f.Protocol, f.DstPort}
	if c.source {
		e = element{f.Src, f.Protocol, f.SrcPort}
		if e.port == 0 {
			e.port = ephemeral
		}
	}
	switch {
	case c.set == nil && c.not:
		return "", "", e.protocol == c.one.protocol && !c.one.contains(e.protocol, e.port)
	case c.set == nil:
		return "", "", c.one.contains(e.protocol, e.port)
	}
	found, ok = k.lookup(c.set, e)
	if c.not {
		return "", "", !ok
	}
	return c.set.name, found, ok
}

// protocolCondition matches a protocol by its number.
type protocolCondition struct {
	number uint8
	not    bool
}

func (c protocolCondition) String() string {
	text := "meta l4proto "
	if c.not {
		text += "!= "
	}
	return text + protocolName(c.number)
}

func (protocolCondition) sets() []*setSpec { return nil }

func (c protocolCondition) matches(_ *walker, f Flow) (set, found string, ok bool) {
	return "", "", (numberOf(f) == c.number) != c.not
}

// numberOf returns the number of a flow's protocol. One that is not known is taken for ping.
func numberOf(f Flow) uint8 {
	switch {
	case f.Number != 0:
		return f.Number
	case f.Protocol == model.TCP:
		return model.NumberTCP
	case f.Protocol == model.UDP:
		return model.NumberUDP
	case f.Protocol == model.SCTP:
		return model.NumberSCTP
	case f.Dst.Is6():
		return model.NumberICMPv6
	}
	return model.NumberICMP
}

// protocolName is nft's word for a protocol.
func protocolName(number uint8) string {
	name, is := map[uint8]string{
		1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 33: "dccp", 47: "gre", 50: "esp", 51: "ah", 58: "ipv6-icmp", 132: "sctp",
		136: "udplite",
	}[number]
	if !is {
		return strconv.Itoa(int(number))
	}
	return name
}

// icmpCondition matches the type or the code of ICMP, or of ICMPv6.
type icmpCondition struct {
	six   bool
	code  bool // else the type
	value uint8
	not   bool
}

func (c icmpCondition) String() string {
	text := "icmp"
	if c.six {
		text = "icmpv6"
	}
	if text += " type "; c.code {
		text = strings.Replace(text, "type", "code", 1)
	}
	if c.not {
		text += "!= "
	}
	return text + strconv.Itoa(int(c.value))
}

func (icmpCondition) sets() []*setSpec { return nil }

// matches takes a flow without ports for ping, which has a request's type and code 0.
func (c icmpCondition) matches(_ *walker, f Flow) (set, found string, ok bool) {
	const echo, echo6 = 8, 128
	number, value := uint8(model.NumberICMP), uint8(echo)
	if c.six {
		number, value = model.NumberICMPv6, echo6
	}
	if c.code {
		value = 0
	}
	return "", "", numberOf(f) == number && f.Dst.Is6() == c.six && (value == c.value) != c.not
}
