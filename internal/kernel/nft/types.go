// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// datatype is one of nft's types: what a set's key is made of and what a field of a packet holds.
type datatype struct {
	name  string
	size  int    // bytes; a concatenation pads each part to four
	magic uint32 // nft's number of the type, kept by the kernel for whoever lists the set
	// host is set for numbers in the machine's own byte order; all others are in the network's.
	host bool
	// wrap is how many elements nft prints on one line; 0 is one.
	wrap int
}

// The types that are understood (nft's include/datatype.h).
func typeNamed(name string) (datatype, error) {
	switch name {
	case "nf_proto":
		return datatype{name: name, size: 1, magic: 2, host: true, wrap: 5}, nil
	case "ipv4_addr":
		return datatype{name: name, size: 4, magic: 7, wrap: 2}, nil
	case "ipv6_addr":
		return datatype{name: name, size: 16, magic: 8}, nil
	case "ether_addr":
		return datatype{name: name, size: 6, magic: 9}, nil
	case "ether_type":
		return datatype{name: name, size: 2, magic: 10, wrap: 1}, nil
	case "arp_op":
		return datatype{name: name, size: 2, magic: 11, wrap: 1}, nil
	case "inet_proto":
		return datatype{name: name, size: 1, magic: 12, wrap: 5}, nil
	case "inet_service":
		return datatype{name: name, size: 2, magic: 13, wrap: 5}, nil
	case "icmp_type":
		return datatype{name: name, size: 1, magic: 14, wrap: 2}, nil
	case "icmpv6_type":
		return datatype{name: name, size: 1, magic: 29, wrap: 1}, nil
	case "tcp_flag":
		return datatype{name: name, size: 1, wrap: 2}, nil
	case "integer": // a plain number of one byte
		return datatype{name: name, size: 1, wrap: 5}, nil
	case "ct_dir":
		return datatype{name: name, size: 1, magic: 27, wrap: 2}, nil
	case "mark":
		return datatype{name: name, size: 4, magic: 19, host: true, wrap: 5}, nil
	case "ct_state":
		return datatype{name: name, size: 4, magic: 26, host: true, wrap: 2}, nil
	case "ct_status":
		return datatype{name: name, size: 4, magic: 28, host: true, wrap: 2}, nil
	case "fib_addrtype":
		return datatype{name: name, size: 4, magic: 38, host: true}, nil
	case "ifname":
		return datatype{name: name, size: 16, magic: 41, host: true}, nil
	}
	return datatype{}, fmt.Errorf("type %q: not one of the types that are understood (ipv4_addr, ipv6_addr, ether_addr, "+
		"inet_proto, inet_service, icmp_type, icmpv6_type, mark, ifname, ct_dir, ct_state, ct_status, fib_addrtype, nf_proto)", name)
}

// typesNamed parses a type expression: types joined with " . ".
func typesNamed(s string) ([]datatype, error) {
	var ts []datatype
	for name := range strings.SplitSeq(s, ".") {
		t, err := typeNamed(strings.TrimSpace(name))
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

func typesString(ts []datatype) string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.name
	}
	return strings.Join(names, " . ")
}

// typesMagic is the number of a concatenation of types: six bits each.
func typesMagic(ts []datatype) uint32 {
	var m uint32
	for _, t := range ts {
		m = m<<6 | t.magic
	}
	return m
}

// typesSize is the length of a key of these types; only a concatenation is padded.
func typesSize(ts []datatype) int {
	if len(ts) == 1 {
		return ts[0].size
	}
	n := 0
	for _, t := range ts {
		n += pad4(t.size)
	}
	return n
}

func pad4(n int) int { return (n + 3) &^ 3 }

// parse gives the bytes of one literal.
func (t datatype) parse(s string) ([]byte, error) {
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		ip, err := netip.ParseAddr(s)
		if err != nil || ip.BitLen() != t.size*8 || ip.Zone() != "" {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		return ip.AsSlice(), nil
	case "ether_addr":
		hw, err := net.ParseMAC(s)
		if err != nil || len(hw) != 6 {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		return hw, nil
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

// isLinkName tells whether nft and the kernel both take it for (the beginning of) a link's name.
func isLinkName(s string) bool {
	return s != "" && len(s) <= 15 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`"/:\`, r)
	})
}

// parseNumber parses the literals that are numbers or names of numbers.
func (t datatype) parseNumber(s string) ([]byte, error) {
	n, known := t.symbol(s)
	if !known {
		v, err := strconv.ParseUint(s, 0, t.size*8)
		if err != nil {
			return nil, fmt.Errorf("%q is no %s", s, t.name)
		}
		n = uint32(v)
	}
	return t.number(n), nil
}

// number gives the bytes of n in the type's size and order.
func (t datatype) number(n uint32) []byte {
	switch t.size {
	case 1:
		return []byte{byte(n)}
	case 2:
		return binary.BigEndian.AppendUint16(nil, uint16(n))
	}
	if t.host {
		return binary.NativeEndian.AppendUint32(nil, n)
	}
	return binary.BigEndian.AppendUint32(nil, n)
}

// value is the inverse of number.
func (t datatype) value(b []byte) uint32 {
	switch {
	case len(b) < t.size:
		return 0
	case t.size == 1:
		return uint32(b[0])
	case t.size == 2:
		return uint32(binary.BigEndian.Uint16(b))
	case t.host:
		return binary.NativeEndian.Uint32(b)
	}
	return binary.BigEndian.Uint32(b)
}

// format prints the bytes of one literal as nft does.
func (t datatype) format(b []byte) string {
	if len(b) < t.size {
		return fmt.Sprintf("%#x", b)
	}
	switch t.name {
	case "ipv4_addr", "ipv6_addr":
		ip, _ := netip.AddrFromSlice(b[:t.size])
		return ip.String()
	case "ether_addr":
		return net.HardwareAddr(b[:t.size]).String()
	case "ifname":
		return `"` + string(bytes.TrimRight(b[:t.size], "\x00")) + `"`
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

// isAddress tells whether ranges of the type are printed as prefixes where they are some.
func (t datatype) isAddress() bool { return t.name == "ipv4_addr" || t.name == "ipv6_addr" }

// isFlags tells whether the type is a set of bits that are listed with commas.
func (t datatype) isFlags() bool {
	return t.name == "ct_state" || t.name == "ct_status" || t.name == "tcp_flag"
}
