// SPDX-License-Identifier: Apache-2.0

package redirect

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/state"
)

// mark is the prefix of the names of weft's programs. The kernel accepts 15 characters.
const (
	mark   = "weft_"
	digest = 10
)

// The fields of the kernel's struct __sk_buff that are used.
const (
	skbLen      = 0
	skbProtocol = 16
	skbTagged   = 20
	skbData     = 76
	skbDataEnd  = 80
)

// Offsets in a frame.
const (
	frameARPOp     = 20
	frameARPTarget = 38
	frame4First    = 14
	frame4Fragment = 20
	frame4Protocol = 23
	frame4Dst      = 30
	frame4Port     = 36
	frame4End      = 42
	frame6Next     = 20
	frame6Dst      = 38
	frame6Type     = 54
	frame6Port     = 56
	frame6End      = 62
	frame6Target   = 62
	frame6Asked    = 78

	portDHCP4, portDHCP6      = 67, 547
	typeRS, typeNS            = 133, 135
	plainHeader, fragmentMask = 0x45, 0x1fff
	arpRequest                = 1
	// mostRead is how much of a fragmented (non-linear) frame is pulled in.
	mostRead = 128
)

// Program is a program for a link.
type Program struct {
	Name         string
	instructions asm.Instructions
}

// ToLink returns a program that redirects everything to the link of an index.
func ToLink(index int) (Program, error) { return named(send(index, false)) }

// FromGuest returns a program that redirects a guest's frames to the link of an index, or with peer to its other end,
// except for those that j keeps.
func FromGuest(j state.Join, index int, peer bool) (Program, error) {
	c := code{}
	if keeps(j) {
		c.begin()
		c.arp(j)
		c.four(j)
		c.six(j)
		c.short()
		c.label("keep")
		c.add(asm.Mov.Imm(asm.R0, -1), asm.Return()) // continue with other attached programs, and then up the stack
		c.label("send")
	}
	c.add(send(index, peer)...)
	return named(c.out)
}

// keeps reports whether any frames are not redirected.
func keeps(j state.Join) bool {
	return len(j.LocalAddrs) > 0 || j.ProxySubnet.IsValid() || j.DHCP4 || j.DHCP6 || j.RS
}

func send(index int, peer bool) asm.Instructions {
	call := asm.FnRedirect
	if peer {
		call = asm.FnRedirectPeer
	}
	return asm.Instructions{asm.Mov.Imm(asm.R1, int32(index)), asm.Mov.Imm(asm.R2, 0), call.Call(), asm.Return()}
}

func named(instructions asm.Instructions) (Program, error) {
	var b bytes.Buffer
	if err := instructions.Marshal(&b, binary.LittleEndian); err != nil {
		return Program{}, fmt.Errorf("eBPF program: %w", err)
	}
	sum := sha256.Sum256(b.Bytes())
	return Program{Name: mark + hex.EncodeToString(sum[:])[:digest], instructions: instructions}, nil
}

func (p Program) spec() *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{Name: p.Name, Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: p.instructions}
}

// code is a program under construction. R6 is the packet, R2 and R3 the beginning and the end of its data, R7 is set
// after a fragmented frame was pulled in.
type code struct {
	out asm.Instructions
	// name is the label of the next instruction, n the number of generated labels.
	name string
	n    int
}

func (c *code) add(i ...asm.Instruction) {
	if c.name != "" {
		i[0], c.name = i[0].WithSymbol(c.name), ""
	}
	c.out = append(c.out, i...)
}

// label labels the next instruction, which must have no label yet.
func (c *code) label(name string) { c.name = name }

// load loads the value at an offset of the frame.
func (c *code) load(offset int16, size asm.Size) { c.add(asm.LoadMem(asm.R5, asm.R2, offset, size)) }

// reach jumps to "short" if the frame is not readable up to an offset.
func (c *code) reach(end int32) {
	c.add(asm.Mov.Reg(asm.R5, asm.R2), asm.Add.Imm(asm.R5, end), asm.JGT.Reg(asm.R5, asm.R3, "short"))
}

// begin dispatches by protocol; frames with a VLAN tag are not for this side.
func (c *code) begin() {
	c.add(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R7, 0))
	c.label("look")
	c.add(
		asm.LoadMem(asm.R5, asm.R6, skbTagged, asm.Word), asm.JNE.Imm(asm.R5, 0, "send"),
		asm.LoadMem(asm.R2, asm.R6, skbData, asm.Word), asm.LoadMem(asm.R3, asm.R6, skbDataEnd, asm.Word),
		asm.LoadMem(asm.R4, asm.R6, skbProtocol, asm.Word),
	)
	c.add(
		asm.JEq.Imm(asm.R4, be16(unix.ETH_P_IP), "four"), asm.JEq.Imm(asm.R4, be16(unix.ETH_P_IPV6), "six"),
		asm.JNE.Imm(asm.R4, be16(unix.ETH_P_ARP), "send"),
	)
}

// arp keeps requests for addresses of this side.
func (c *code) arp(j state.Join) {
	c.reach(frame4End)
	c.load(frameARPOp, asm.Half)
	c.add(asm.JNE.Imm(asm.R5, be16(arpRequest), "send"))
	c.load(frameARPTarget, asm.Word)
	c.among(own(j, false), "keep")
	if j.ProxySubnet.IsValid() {
		c.add(asm.JEq.Imm32(asm.R5, be32(j.GuestAddr), "send"))
		mask := netip.AddrFrom4([4]byte(netMask(j.ProxySubnet.Bits())))
		c.add(asm.And.Imm32(asm.R5, be32(mask)), asm.JEq.Imm32(asm.R5, be32(j.ProxySubnet.Masked().Addr()), "keep"))
	}
	c.add(asm.Ja.Label("send"))
}

// among jumps to a label if the IPv4 address in R5 is one of own.
func (c *code) among(own []netip.Addr, then string) {
	for _, ip := range own {
		c.add(asm.JEq.Imm32(asm.R5, be32(ip), then))
	}
}

// four keeps DHCP to this side, or by broadcast.
func (c *code) four(j state.Join) {
	c.label("four")
	c.reach(frame4End)
	c.load(frame4Dst, asm.Word)
	c.among(own(j, false), "dhcp4")
	if j.DHCP4 {
		c.add(asm.JEq.Imm32(asm.R5, -1, "dhcp4"))
	}
	c.add(asm.Ja.Label("send"))
	if !j.DHCP4 && len(own(j, false)) == 0 {
		return
	}
	c.label("dhcp4")
	c.load(frame4First, asm.Byte)
	c.add(asm.JNE.Imm(asm.R5, plainHeader, "send"))
	c.load(frame4Protocol, asm.Byte)
	c.add(asm.JNE.Imm(asm.R5, unix.IPPROTO_UDP, "send"))
	c.load(frame4Fragment, asm.Half)
	c.add(asm.And.Imm(asm.R5, be16(fragmentMask)), asm.JNE.Imm(asm.R5, 0, "send"))
	c.load(frame4Port, asm.Half)
	c.add(asm.JEq.Imm(asm.R5, be16(portDHCP4), "keep"), asm.Ja.Label("send"))
}

// six keeps ICMPv6 and DHCPv6 to this side, neighbor solicitations for its addresses, and requests to servers and
// routers.
func (c *code) six(j state.Join) {
	c.label("six")
	c.reach(frame6End)
	c.among6(own(j, true), frame6Dst, "own6")
	c.load(frame6Next, asm.Byte)
	if j.DHCP6 {
		c.add(asm.JEq.Imm(asm.R5, unix.IPPROTO_UDP, "udp6"))
	}
	c.add(asm.JNE.Imm(asm.R5, unix.IPPROTO_ICMPV6, "send"))
	c.load(frame6Type, asm.Byte)
	if j.RS {
		c.add(asm.JEq.Imm(asm.R5, typeRS, "keep"))
	}
	c.add(asm.JNE.Imm(asm.R5, typeNS, "send"))
	c.reach(frame6Asked)
	c.among6(own(j, true), frame6Target, "keep")
	c.add(asm.Ja.Label("send"))
	if len(own(j, true)) > 0 {
		c.label("own6")
		c.load(frame6Next, asm.Byte)
		c.add(asm.JEq.Imm(asm.R5, unix.IPPROTO_ICMPV6, "keep"))
		c.add(asm.JEq.Imm(asm.R5, unix.IPPROTO_UDP, "port6"), asm.Ja.Label("send"))
	}
	if j.DHCP6 {
		c.label("udp6")
		c.load(frame6Dst, asm.Half)
		c.add(asm.JNE.Imm(asm.R5, be16(0xff02), "send"))
	}
	if !j.DHCP6 && len(own(j, true)) == 0 {
		return
	}
	c.label("port6")
	c.load(frame6Port, asm.Half)
	c.add(asm.JEq.Imm(asm.R5, be16(portDHCP6), "keep"), asm.Ja.Label("send"))
}

// among6 jumps to a label if the IPv6 address at an offset is one of own.
func (c *code) among6(own []netip.Addr, offset int16, then string) {
	for _, ip := range own {
		c.n++
		next := fmt.Sprintf("next%d", c.n)
		for half := range 2 {
			b := ip.As16()
			c.load(offset+int16(8*half), asm.DWord)
			c.add(asm.LoadImm(asm.R4, int64(binary.NativeEndian.Uint64(b[8*half:])), asm.DWord),
				asm.JNE.Reg(asm.R5, asm.R4, next))
		}
		c.add(asm.Ja.Label(then))
		c.label(next)
	}
}

// short pulls a fragmented frame in, once, and starts again.
func (c *code) short() {
	c.label("short")
	c.add(
		asm.JNE.Imm(asm.R7, 0, "send"), asm.Mov.Imm(asm.R7, 1),
		asm.Mov.Reg(asm.R1, asm.R6), asm.LoadMem(asm.R2, asm.R6, skbLen, asm.Word),
		asm.JLE.Imm(asm.R2, mostRead, "read"), asm.Mov.Imm(asm.R2, mostRead),
		asm.FnSkbPullData.Call().WithSymbol("read"), asm.Ja.Label("look"),
	)
}

func own(j state.Join, v6 bool) []netip.Addr {
	var out []netip.Addr
	for _, ip := range j.LocalAddrs {
		if ip.Is6() == v6 {
			out = append(out, ip)
		}
	}
	return out
}

func netMask(bits int) []byte {
	const all = 1<<32 - 1
	return binary.BigEndian.AppendUint32(nil, all&^uint32(all>>bits))
}

// be16 and be32 convert numbers to the form in which they are loaded from a frame.
func be16(n uint16) int32 {
	return int32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)))
}

func be32(ip netip.Addr) int32 { return int32(binary.NativeEndian.Uint32(ip.AsSlice())) }
