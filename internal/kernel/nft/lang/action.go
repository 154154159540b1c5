// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// natFlag is a flag of masquerade, snat and dnat (linux/netfilter/nf_nat.h).
type natFlag struct {
	word string
	bit  uint32
}

// natPort is set with a port (NF_NAT_RANGE_PROTO_SPECIFIED).
const natPort = 2

func natFlags() []natFlag { return []natFlag{{"random", 4}, {"fully-random", 16}, {"persistent", 8}} }

// natFlags compiles a list of flags, which may be absent.
func (c *compiler) natFlags() (uint32, error) {
	known := func(w string) uint32 {
		for _, f := range natFlags() {
			if f.word == w {
				return f.bit
			}
		}
		return 0
	}
	first, _, _ := strings.Cut(c.peek(), ",")
	if known(first) == 0 {
		return 0, nil
	}
	var all uint32
	for w := range strings.SplitSeq(c.peek(), ",") {
		if known(w) == 0 {
			return 0, fmt.Errorf("%q in %s is no flag of address translation (random, fully-random, persistent)", w,
				c.position())
		}
		all |= known(w)
	}
	c.pos++
	return all, nil
}

// nat compiles "dnat ip to TARGET".
func (c *compiler) nat() error {
	e := Expr{Name: "nat", Key: unix.NFT_NAT_SNAT, Family: uint32(c.family)}
	if c.next() == "dnat" {
		e.Key = unix.NFT_NAT_DNAT
	}
	switch {
	case c.accept("ip"):
		e.Family = unix.NFPROTO_IPV4
	case c.accept("ip6"):
		e.Family = unix.NFPROTO_IPV6
	case c.family == unix.NFPROTO_INET:
		return fmt.Errorf("want ip or ip6 at %s: the table is of both families", c.position())
	}
	if err := c.expect("to"); err != nil {
		return err
	}
	var err error
	if _, isField := fieldNamed(strings.Join(c.words[c.pos:min(c.pos+2, len(c.words))], " ")); isField {
		err = c.natMap(&e)
	} else {
		err = c.natAddr(&e)
	}
	if err != nil {
		return err
	}
	flags, err := c.natFlags()
	e.Flags |= flags
	c.emit(e)
	return err
}

// natMap compiles a target that is looked up in a map.
func (c *compiler) natMap(e *Expr) error {
	fs, err := c.key(0)
	if err != nil {
		return err
	}
	if err := c.expect("map"); err != nil {
		return err
	}
	s, err := c.lookup(fs, true)
	if err != nil {
		return err
	}
	addr := "ipv4_addr"
	if e.Family == unix.NFPROTO_IPV6 {
		addr = "ipv6_addr"
	}
	if got := typesString(s.Data); got != addr && got != addr+" . inet_service" {
		return fmt.Errorf("map @%s holds %q, want %s or %s . inet_service", s.Name, got, addr, addr)
	}
	c.emit(Expr{Name: "lookup", Set: s.Name, Sreg: word(0), Dreg: word(0)})
	e.AddrReg = word(0)
	if len(s.Data) == 2 {
		e.PortReg = word(s.Data[0].Size / 4)
	}
	return nil
}

// natAddr compiles a target that is an address, or an address and a port.
func (c *compiler) natAddr(e *Expr) error {
	ip, err := netip.ParseAddr(c.peek())
	var port uint16
	if err != nil {
		var ap netip.AddrPort
		if ap, err = netip.ParseAddrPort(c.peek()); err != nil {
			return fmt.Errorf("want an address, or address:port, at %s", c.position())
		}
		ip, port = ap.Addr(), ap.Port()
	}
	if ip.Is4() != (e.Family == unix.NFPROTO_IPV4) {
		return fmt.Errorf("the address at %s is of the other family", c.position())
	}
	if port != 0 && c.known.l4 == 0 {
		return fmt.Errorf("a port at %s needs a match of the transport protocol before it", c.position())
	}
	c.pos++
	c.emit(Expr{Name: "immediate", Dreg: word(0), Data: ip.AsSlice()})
	e.AddrReg = word(0)
	if port != 0 {
		c.emit(Expr{Name: "immediate", Dreg: word(4), Data: []byte{byte(port >> 8), byte(port)}})
		e.PortReg = word(4)
		e.Flags |= natPort
	}
	return nil
}

// setMark compiles "meta mark set SOURCE", where SOURCE is a number, or one of the marks with one operation.
func (c *compiler) setMark() error {
	store, _ := fieldNamed(c.next() + " " + c.next())
	c.pos++ // set
	mark := store.typ
	if f, err := c.field(); err == nil {
		if f.typ.name != "mark" {
			return fmt.Errorf("%q is no mark", f.name)
		}
		load := f.load
		load.Dreg = word(0)
		c.emit(load)
		if err := c.markOperation(mark); err != nil {
			return err
		}
	} else {
		v, err := mark.parse(c.next())
		if err != nil {
			return err
		}
		c.emit(Expr{Name: "immediate", Dreg: word(0), Data: v})
	}
	c.emit(Expr{Name: store.load.Name, Key: store.load.Key, Sreg: word(0)})
	return nil
}

// markOperation compiles an optional "& N", "| N" or "^ N".
func (c *compiler) markOperation(mark Type) error {
	op := c.peek()
	if op != "&" && op != "|" && op != "^" {
		return nil
	}
	c.pos++
	v, err := mark.parse(c.next())
	if err != nil {
		return err
	}
	n := mark.value(v)
	switch op {
	case "&":
		c.emit(bitwise(word(0), mark.number(n), mark.number(0)))
	case "|":
		c.emit(bitwise(word(0), mark.number(^n), mark.number(n)))
	case "^":
		c.emit(bitwise(word(0), mark.number(^uint32(0)), mark.number(n)))
	}
	return nil
}
