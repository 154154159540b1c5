// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nat decompiles an address translation; its target is in registers.
func (r *decompiler) nat(e Expr) bool {
	c, ok := r.register(e.AddrReg)
	if !ok {
		return false
	}
	words := []string{"snat"}
	if e.Key == unix.NFT_NAT_DNAT {
		words[0] = "dnat"
	}
	if r.family == unix.NFPROTO_INET {
		if e.Family == unix.NFPROTO_IPV6 {
			words = append(words, "ip6")
		} else {
			words = append(words, "ip")
		}
	}
	target := c.words
	if target == "" {
		if target, ok = r.natTarget(e, c.data); !ok {
			return false
		}
	}
	words = append(words, "to", target)
	if flags := natFlagText(e.Flags); flags != "" {
		words = append(words, flags)
	}
	r.clearRegisters()
	return r.emit(strings.Join(words, " "))
}

// natTarget prints a fixed target.
func (r *decompiler) natTarget(e Expr, addr []byte) (string, bool) {
	ip, ok := netip.AddrFromSlice(addr)
	if !ok {
		return "", false
	}
	if e.PortReg == 0 {
		return ip.String(), true
	}
	p, ok := r.register(e.PortReg)
	if !ok || len(p.data) != 2 {
		return "", false
	}
	port := strconv.Itoa(int(binary.BigEndian.Uint16(p.data)))
	if ip.Is6() {
		return "[" + ip.String() + "]:" + port, true
	}
	return ip.String() + ":" + port, true
}

// store decompiles "meta mark set" and "ct mark set".
func (r *decompiler) store(e Expr) bool {
	c, ok := r.register(e.Sreg)
	if !ok {
		return false
	}
	target := "meta mark set "
	switch {
	case e.Name == "meta" && e.Key == unix.NFT_META_MARK:
	case e.Name == "ct" && e.Key == unix.NFT_CT_MARK:
		target = "ct mark set "
	default:
		return false
	}
	mark, _ := typeByName("mark")
	r.clearRegisters()
	switch {
	case c.data != nil:
		return r.emit(target + mark.format(c.data))
	case c.field == nil:
		return false
	case c.mask == nil:
		return r.emit(target + c.field.name)
	}
	mask, xor := mark.value(c.mask), mark.value(c.xor)
	source := target + c.field.name
	switch {
	case xor == 0:
		return r.emit(source + " & " + mark.format(c.mask))
	case mask == ^xor:
		return r.emit(source + " | " + mark.format(c.xor))
	case mask == ^uint32(0):
		return r.emit(source + " ^ " + mark.format(c.xor))
	}
	return false
}
