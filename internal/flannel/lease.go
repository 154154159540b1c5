// SPDX-License-Identifier: Apache-2.0

package flannel

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Lease is a node's lease in etcd: its subnets are the key, what it publishes is the value.
type Lease struct {
	Subnet     netip.Prefix
	IPv6Subnet netip.Prefix // invalid where the family is off
	Published  model.Published
}

// Subnets are the lease's prefixes, IPv4 first.
func (l Lease) Subnets() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range []netip.Prefix{l.Subnet, l.IPv6Subnet} {
		if p.IsValid() {
			out = append(out, p)
		}
	}
	return out
}

// Key is the last part of the lease's key: 10.5.34.0-24, or 10.5.34.0-24&fc00::-64. Where IPv4 is off flannel writes
// 0.0.0.0-0 in its place.
func (l Lease) Key() string {
	v4 := l.Subnet
	if !v4.IsValid() {
		v4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	s := part(v4)
	if l.IPv6Subnet.IsValid() {
		s += "&" + part(l.IPv6Subnet)
	}
	return s
}

func part(p netip.Prefix) string { return p.Addr().String() + "-" + strconv.Itoa(p.Bits()) }

// leaseValue is the value of a lease's key, with the keys in flannel's order.
type leaseValue struct {
	PublicIP      string
	PublicIPv6    *string
	BackendType   string          `json:",omitempty"`
	BackendData   json.RawMessage `json:",omitempty"`
	BackendV6Data json.RawMessage `json:",omitempty"`
}

// Value is the value of the lease's key.
func (l Lease) Value() []byte {
	v := leaseValue{PublicIP: "0.0.0.0", BackendType: l.Published.Backend}
	if a, ok := addrOf(l.Published.Addrs, true); ok {
		v.PublicIP = a.String()
	} else if !l.Subnet.IsValid() {
		v.PublicIP = placeholder(l.IPv6Subnet).String()
	}
	if a, ok := addrOf(l.Published.Addrs, false); ok {
		s := a.String()
		v.PublicIPv6 = &s
	}
	for _, w := range []struct {
		text string
		into *json.RawMessage
	}{{l.Published.Data, &v.BackendData}, {l.Published.DataV6, &v.BackendV6Data}} {
		if w.text != "" {
			*w.into = json.RawMessage(w.text)
		}
	}
	b, err := json.Marshal(v)
	if err != nil { // data that is no JSON; the rest is still published
		v.BackendData, v.BackendV6Data = nil, nil
		b, _ = json.Marshal(v)
	}
	return b
}

// placeholder returns the PublicIP of a lease without IPv4. flanneld writes 0.0.0.0 there, and takes any lease with
// that value for its own, and so the subnet of another IPv6-only node. The address is never used: it is of 240.0.0.0/4,
// derived from the subnet.
func placeholder(p netip.Prefix) netip.Addr {
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.String()))
	n := h.Sum32()
	return netip.AddrFrom4([4]byte{0xf0 | byte(n>>24)&0x0e, byte(n >> 16), byte(n >> 8), byte(n)}) //nolint:gosec // its bytes
}

// ParseLease reads a lease: the last part of its key, and its value. PublicIP says nothing where there is no IPv4
// subnet.
func ParseLease(key string, value []byte) (Lease, error) {
	var l Lease
	bad := func(what string) error {
		return model.Errorf(model.CodeDecode, "keys below subnets are as 10.5.34.0-24 or 10.5.34.0-24&fc00::-64",
			"subnet key %q: %s", key, what)
	}
	v4, v6, dual := strings.Cut(key, "&")
	var ok bool
	if l.Subnet, ok = parsePart(v4); !ok || !l.Subnet.Addr().Is4() {
		return l, bad(v4 + " is no IPv4 subnet")
	}
	if dual {
		if l.IPv6Subnet, ok = parsePart(v6); !ok || !l.IPv6Subnet.Addr().Is6() || l.IPv6Subnet.Addr().Is4In6() {
			return l, bad(v6 + " is no IPv6 subnet")
		}
	}
	if l.Subnet.Bits() == 0 {
		if l.Subnet = (netip.Prefix{}); !dual {
			return l, bad("it has no subnet at all")
		}
	}
	var v leaseValue
	if err := json.Unmarshal(value, &v); err != nil {
		return l, model.Errorf(model.CodeDecode, "the node that owns it writes it again when it starts",
			"value of subnet key %q: %w", key, err)
	}
	l.Published = model.Published{
		Backend: v.BackendType, Data: data(string(v.BackendData)), DataV6: data(string(v.BackendV6Data)),
	}
	texts := []string{v.PublicIP}
	if v.PublicIPv6 != nil {
		texts = append(texts, *v.PublicIPv6)
	}
	for i, text := range texts {
		a, err := netip.ParseAddr(text)
		switch {
		case text == "" || text == "0.0.0.0" || text == "::", i == 0 && !l.Subnet.IsValid():
			continue
		case err != nil || a.Zone() != "" || a.Unmap().Is4() != (i == 0):
			return l, model.Errorf(model.CodeDecode, "the node that owns it writes it again when it starts",
				"value of subnet key %q: address %q is none of its family", key, text)
		}
		l.Published.Addrs = append(l.Published.Addrs, a.Unmap())
	}
	return l, nil
}

// parsePart reads 10.5.34.0-24.
func parsePart(s string) (netip.Prefix, bool) {
	i := strings.LastIndexByte(s, '-')
	if i < 0 {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(s[:i] + "/" + s[i+1:])
	return p, err == nil && p == p.Masked()
}

// String describes the lease in messages.
func (l Lease) String() string {
	var all []string
	for _, p := range l.Subnets() {
		all = append(all, p.String())
	}
	return fmt.Sprintf("%s (%s)", strings.Join(all, ", "), l.Published.Backend)
}
