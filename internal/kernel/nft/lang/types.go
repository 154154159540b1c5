// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// Type is one of nft's types, of a set's key or of a packet's field.
type Type struct {
	name string
	Size int    // bytes; a concatenation pads each part to four
	id   uint32 // nft's number of the type, which the kernel stores for programs that list the set
	// HostOrder marks numbers in host byte order; all others are in network byte order.
	HostOrder bool
	// wrap is how many elements nft prints on one line; 0 is one.
	wrap int
}

// typeByName returns a supported type (nft's include/datatype.h).
func typeByName(name string) (Type, error) {
	switch name {
	case "nf_proto":
		return Type{name: name, Size: 1, id: 2, HostOrder: true, wrap: 5}, nil
	case "ipv4_addr":
		return Type{name: name, Size: 4, id: 7, wrap: 2}, nil
	case "ipv6_addr":
		return Type{name: name, Size: 16, id: 8}, nil
	case "ether_addr":
		return Type{name: name, Size: 6, id: 9}, nil
	case "ether_type":
		return Type{name: name, Size: 2, id: 10, wrap: 1}, nil
	case "arp_op":
		return Type{name: name, Size: 2, id: 11, wrap: 1}, nil
	case "inet_proto":
		return Type{name: name, Size: 1, id: 12, wrap: 5}, nil
	case "inet_service":
		return Type{name: name, Size: 2, id: 13, wrap: 5}, nil
	case "icmp_type":
		return Type{name: name, Size: 1, id: 14, wrap: 2}, nil
	case "icmpv6_type":
		return Type{name: name, Size: 1, id: 29, wrap: 1}, nil
	case "tcp_flag":
		return Type{name: name, Size: 1, wrap: 2}, nil
	case "integer": // a number of one byte
		return Type{name: name, Size: 1, wrap: 5}, nil
	case "ct_dir":
		return Type{name: name, Size: 1, id: 27, wrap: 2}, nil
	case "mark":
		return Type{name: name, Size: 4, id: 19, HostOrder: true, wrap: 5}, nil
	case "ct_state":
		return Type{name: name, Size: 4, id: 26, HostOrder: true, wrap: 2}, nil
	case "ct_status":
		return Type{name: name, Size: 4, id: 28, HostOrder: true, wrap: 2}, nil
	case "fib_addrtype":
		return Type{name: name, Size: 4, id: 38, HostOrder: true}, nil
	case "ifname":
		return Type{name: name, Size: 16, id: 41, HostOrder: true}, nil
	}
	return Type{}, fmt.Errorf("type %q: not one of the types that are understood (ipv4_addr, ipv6_addr, ether_addr, "+
		"inet_proto, inet_service, icmp_type, icmpv6_type, mark, ifname, ct_dir, ct_state, ct_status, fib_addrtype, nf_proto)", name)
}

// parseTypes parses a type expression: types joined with " . ".
func parseTypes(s string) ([]Type, error) {
	var ts []Type
	for name := range strings.SplitSeq(s, ".") {
		t, err := typeByName(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		ts = append(ts, t)
	}
	if len(ts) > 5 {
		return nil, fmt.Errorf("type %q: %d parts, at most 5 fit", s, len(ts))
	}
	return ts, nil
}

func typesString(ts []Type) string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.name
	}
	return strings.Join(names, " . ")
}

// TypesID returns the number of a concatenation of types: six bits each.
func TypesID(ts []Type) uint32 {
	var m uint32
	for _, t := range ts {
		m = m<<6 | t.id
	}
	return m
}

// TypesSize returns the length of a key of these types; only a concatenation is padded.
func TypesSize(ts []Type) int {
	if len(ts) == 1 {
		return ts[0].Size
	}
	n := 0
	for _, t := range ts {
		n += pad4(t.Size)
	}
	return n
}

func pad4(n int) int { return (n + 3) &^ 3 }

// parse returns the bytes of one literal.
func (t Type) parse(s string) ([]byte, error) {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.BitLen() != t.Size*8 || ip.Zone() != "" {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		return ip.AsSlice(), nil
	case "ether_addr":
		mac, err := state.ParseMAC(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		return mac[:], nil
	case "ifname":
		name := strings.Trim(s, `"`)
		if !isLinkName(name) || strings.Contains(name, "*") {
			return nil, fmt.Errorf("%q is no interface name (1 to 15 bytes)", s)
		}
		b := make([]byte, 16)
		copy(b, name)
		return b, nil
	}
	return t.parseNumber(s)
}

// isLinkName reports whether both nft and the kernel accept it as (the beginning of) a link's name.
func isLinkName(s string) bool {
	return s != "" && len(s) <= 15 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"/:\`, r)
	})
}

// parseNumber parses the literals that are numbers or names of numbers.
func (t Type) parseNumber(s string) ([]byte, error) {
	n, known := t.symbol(s)
	if !known {
		v, err := strconv.ParseUint(s, 0, t.Size*8)
		if err != nil {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		n = uint32(v)
	}
	return t.number(n), nil
}

// number returns the bytes of n in the type's size and byte order.
func (t Type) number(n uint32) []byte {
	switch t.Size {
	case 1:
		return []byte{byte(n)}
	case 2:
		return binary.BigEndian.AppendUint16(nil, uint16(n))
	}
	if t.HostOrder {
		return binary.NativeEndian.AppendUint32(nil, n)
	}
	return binary.BigEndian.AppendUint32(nil, n)
}

// value is the inverse of number.
func (t Type) value(b []byte) uint32 {
	switch {
	case len(b) < t.Size:
		return 0
	case t.Size == 1:
		return uint32(b[0])
	case t.Size == 2:
		return uint32(binary.BigEndian.Uint16(b))
	case t.HostOrder:
		return binary.NativeEndian.Uint32(b)
	}
	return binary.BigEndian.Uint32(b)
}

// format prints the bytes of one literal as nft does.
func (t Type) format(b []byte) string {
	if len(b) < t.Size {
		return fmt.Sprintf("%#x", b)
	}
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		ip, _ := netip.AddrFromSlice(b[:t.Size])
		return ip.String()
	case "ether_addr":
		return state.MAC(b[:t.Size]).String()
	case "ifname":
		return `"` + string(bytes.TrimRight(b[:t.Size], "\x00")) + `"`
	case "mark":
		return fmt.Sprintf("0x%08x", t.value(b))
	}
	n := t.value(b)
	for _, s := range t.symbols() {
		if s.n == n {
			return s.name
		}
	}
	return strconv.FormatUint(uint64(n), 10)
}

// isAddress reports whether ranges of the type are printed as prefixes if possible.
func (t Type) isAddress() bool { return t.name == "ipv4_addr" || t.name == "ipv6_addr" }

// isFlags reports whether the type is a set of bits that are listed with commas.
func (t Type) isFlags() bool {
	return t.name == "ct_state" || t.name == "ct_status" || t.name == "tcp_flag"
}
