// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The position of the code point in the first two bytes of a header: in IPv6 after the four bits of the version.
const (
	dscpShift4, dscpShift6 = 2, 6
	// The offset of the checksum in an IPv4 header.
	checksumAt = 10
)

// dscp compiles "ip dscp set N": the bits replace those that were loaded, and the checksum is updated.
func (c *compiler) dscp() error {
	v6 := c.next() == "ip6"
	c.pos += 2 // dscp set
	n, err := strconv.ParseUint(c.peek(), 0, 6)
	if err != nil {
		return fmt.Errorf("want a code point from 0 to 63 at %s", c.position())
	}
	c.pos++
	name, shift := "ip saddr", dscpShift4
	if v6 {
		name, shift = "ip6 saddr", dscpShift6
	}
	f, _ := fieldNamed(name)
	if err := c.requireProtocols(f); err != nil {
		return err
	}
	mask, xor := dscpBits(uint16(n), shift)
	store := Expr{Name: "payload", Key: unix.NFT_PAYLOAD_NETWORK_HEADER, Size: 2, Sreg: word(0)}
	if !v6 {
		store.Csum, store.CsumOffset = unix.NFT_PAYLOAD_CSUM_INET, checksumAt
	}
	c.emit(Expr{Name: "payload", Key: unix.NFT_PAYLOAD_NETWORK_HEADER, Size: 2, Dreg: word(0)}, Expr{
		Name: "bitwise", Sreg: word(0), Dreg: word(0), Size: 2, Data: mask, More: xor,
	}, store)
	return nil
}

// dscpBits returns the mask that keeps all other bits, and the bits of a code point.
func dscpBits(n uint16, shift int) (mask, xor []byte) {
	return binary.BigEndian.AppendUint16(nil, ^uint16(63<<shift)), binary.BigEndian.AppendUint16(nil, n<<shift)
}

// dscpField is the field of the first two bytes of a header; only storing it is supported.
func (p protocols) dscpField(e Expr) (field, bool) {
	if e.Name != "payload" || e.Key != unix.NFT_PAYLOAD_NETWORK_HEADER || e.Offset != 0 || e.Size != 2 {
		return field{}, false
	}
	f := field{name: "ip dscp", l3: protoIPv4, load: e}
	if p.l3 == protoIPv6 {
		f.name, f.l3 = "ip6 dscp", protoIPv6
	}
	return f, p.l3 == f.l3
}

// storeDSCP decompiles the end of "ip dscp set N".
func (r *decompiler) storeDSCP(e Expr) bool {
	c, ok := r.register(e.Sreg)
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
	r.clearRegisters()
	return r.emit(fmt.Sprintf("%s set %d", r.mention(c.field), n))
}
