// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The code point stands in six bits of the first two bytes of a header: behind four of the version in IPv6.
const (
	dscpShift4, dscpShift6 = 2, 6
	// The header of IPv4 has a checksum, at this place.
	checksumAt = 10
)

// dscp compiles "ip dscp set N": the bits are written over what was loaded, and the checksum follows.
func (c *compiler) dscp() error {
	v6 := c.next() == "ip6"
	c.pos += 2 // dscp set
	n, err := strconv.ParseUint(c.peek(), 0, 6)
	if err != nil {
		return fmt.Errorf("want a code point from 0 to 63 at %s", c.here())
	}
	c.pos++
	name, shift := "ip saddr", dscpShift4
	if v6 {
		name, shift = "ip6 saddr", dscpShift6
	}
	f, _ := fieldNamed(name)
	if err := c.need(f); err != nil {
		return err
	}
	mask, xor := dscpBits(uint16(n), shift)
	store := expr{op: "payload", key: unix.NFT_PAYLOAD_NETWORK_HEADER, size: 2, sreg: word(0)}
	if !v6 {
		store.csum, store.csumAt = unix.NFT_PAYLOAD_CSUM_INET, checksumAt
	}
	c.emit(expr{op: "payload", key: unix.NFT_PAYLOAD_NETWORK_HEADER, size: 2, dreg: word(0)}, expr{
		op: "bitwise", sreg: word(0), dreg: word(0), size: 2, data: mask, more: xor,
	}, store)
	return nil
}

// dscpBits are the mask that leaves all else and the bits of a code point.
func dscpBits(n uint16, shift int) (mask, xor []byte) {
	return binary.BigEndian.AppendUint16(nil, ^uint16(63<<shift)), binary.BigEndian.AppendUint16(nil, n<<shift)
}

// dscpField is what the first two bytes of a header are read as; only writing them is understood.
func (p protocols) dscpField(e expr) (field, bool) {
	if e.op != "payload" || e.key != unix.NFT_PAYLOAD_NETWORK_HEADER || e.off != 0 || e.size != 2 {
		return field{}, false
	}
	f := field{name: "ip dscp", l3: protoIPv4, load: e}
	if p.l3 == protoIPv6 {
		f.name, f.l3 = "ip6 dscp", protoIPv6
	}
	return f, p.l3 == f.l3
}

// storeDSCP reads the end of "ip dscp set N".
func (r *reader) storeDSCP(e expr) bool {
	c, ok := r.get(e.sreg)
	if !ok || c.field == nil || len(c.mask) != 2 || c.field.name != "ip dscp" && c.field.name != "ip6 dscp" {
		return false
	}
	shift := dscpShift4
	if c.field.l3 == protoIPv6 {
		shift = dscpShift6
	}
	n := binary.BigEndian.Uint16(c.xor) >> shift
	mask, xor := dscpBits(n, shift)
	if !bytes.Equal(mask, c.mask) || !bytes.Equal(xor, c.xor) || n > 63 {
		return false
	}
	r.forget()
	return r.say(fmt.Sprintf("%s set %d", r.use(c.field), n))
}
