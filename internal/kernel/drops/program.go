// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/asm"

	"github.com/weft-net/weft/internal/kernel/bpfcode"
)

// Places in a record, which is on the program's stack from its beginning at -recordSize. Numbers have the host's byte
// order.
const (
	atLocation  = 0  // u64, in the kernel's code
	atReason    = 8  // u32
	atIndex     = 12 // u32, of the interface
	atNamespace = 16 // u32, its inode
	atMark      = 20 // u32
	atName      = 24 // 16 bytes, of the interface
	atPacket    = 40 // from the IP header
	packetSize  = 128
	recordSize  = atPacket + packetSize

	scratch = -recordSize - 8 // 8 bytes for a pointer
)

// Places in IP headers (RFC 791, RFC 8200).
const (
	protocol4, src4, dst4, port4 = 9, 12, 16, 22 // the UDP destination port where the header has no options
	protocol6, src6, dst6, port6 = 6, 8, 24, 42
	udp                          = 17
)

// offsets are the places of fields in the kernel's structures, in bytes.
type offsets struct {
	head, network, device  int // of sk_buff
	mark                   int
	index, name, namespace int // of net_device
	inode                  int // of net
}

// readOffsets reads the offsets from the kernel's BTF.
func readOffsets(l *bpfcode.Layout) (o offsets, err error) {
	o = offsets{
		head: l.Offset("sk_buff", "head"), network: l.Offset("sk_buff", "network_header"), device: l.Offset("sk_buff", "dev"),
		mark:  l.Offset("sk_buff", "mark"),
		index: l.Offset("net_device", "ifindex"), name: l.Offset("net_device", "name"),
		namespace: l.Offset("net_device", "nd_net", "net"),
		inode:     l.Offset("net", "ns", "inum"),
	}
	return o, l.Err()
}

// code returns the program: it writes a record into the ring for each dropped packet of the address, and for each
// dropped packet of a tunnel to the port; or for those of the reasons, if there are any. ring is the ring's file descriptor,
// missed that of the array that counts the records for which the ring has no room.
func code(o offsets, f Filter, reasons []uint32, ring, missed int) asm.Instructions {
	c := program{}
	// R6: the packet (sk_buff), R7: its head, R8: the device. The context has packet, location and reason.
	c.Add(
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R7, asm.R1, 8, asm.DWord),
		asm.LoadMem(asm.R8, asm.R1, 16, asm.DWord),
	)
	c.Clear(scratch)
	c.Add(
		asm.StoreMem(asm.RFP, field(atLocation), asm.R7, asm.DWord),
		asm.StoreMem(asm.RFP, field(atReason), asm.R8, asm.Word),
	)
	c.reasons(f, reasons)
	c.Pointer(asm.R7, asm.R6, o.head, scratch)
	c.Read(scratch, 2, asm.R6, o.network)
	c.Add(asm.LoadMem(asm.R3, asm.RFP, scratch, asm.DWord), asm.Add.Reg(asm.R3, asm.R7))
	c.Call(int32(field(atPacket)), packetSize)
	if len(f.Reasons) == 0 {
		c.filter(f)
	}

	c.Label("record")
	c.Read(int32(field(atMark)), 4, asm.R6, o.mark)
	c.Pointer(asm.R8, asm.R6, o.device, scratch)
	c.Add(asm.JEq.Imm(asm.R8, 0, "send"))
	c.Read(int32(field(atIndex)), 4, asm.R8, o.index)
	c.Read(int32(field(atName)), 16, asm.R8, o.name)
	c.Pointer(asm.R7, asm.R8, o.namespace, scratch)
	c.Add(asm.JEq.Imm(asm.R7, 0, "send"))
	c.Read(int32(field(atNamespace)), 4, asm.R7, o.inode)
	c.Label("send")
	c.Add(
		asm.LoadMapPtr(asm.R1, ring), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -recordSize),
		asm.Mov.Imm(asm.R3, recordSize), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
	)
	c.Count(missed, 0, scratch, "end")
	c.Label("end")
	c.Add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return c.Instructions()
}

// program is the program under construction.
type program struct{ bpfcode.Code }

// reasons goes to end for drops of other reasons than those of the filter, if it has any.
func (c *program) reasons(f Filter, numbers []uint32) {
	if len(f.Reasons) == 0 {
		return
	}
	for _, n := range numbers {
		c.Add(asm.JEq.Imm(asm.R8, int32(n), "wanted"))
	}
	c.Add(asm.Ja.Label("end"))
	c.Label("wanted")
}

// filter goes to record for packets of the filter, and else to end.
func (c *program) filter(f Filter) {
	packet := func(at int) int16 { return field(atPacket + at) }
	version, src, dst := int32(4), src4, dst4
	if f.Addr.Is6() {
		version, src, dst = 6, src6, dst6
	}
	c.Add(asm.LoadMem(asm.R2, asm.RFP, packet(0), asm.Byte), asm.RSh.Imm(asm.R2, 4), asm.JNE.Imm(asm.R2, version, "other"))
	for _, at := range []int{src, dst} {
		next := fmt.Sprintf("not %d", at)
		addr := f.Addr.AsSlice()
		for i := 0; i < len(addr); i += 4 {
			c.Add(
				asm.LoadMem(asm.R2, asm.RFP, packet(at+i), asm.Word),
				asm.LoadImm(asm.R3, int64(binary.NativeEndian.Uint32(addr[i:])), asm.DWord), asm.JNE.Reg(asm.R2, asm.R3, next),
			)
		}
		c.Add(asm.Ja.Label("record"))
		c.Label(next)
	}
	c.Label("other")
	if f.TunnelPort == 0 {
		c.Add(asm.Ja.Label("end"))
		return
	}
	// The tunnel may be of the other family.
	c.Add(asm.LoadMem(asm.R2, asm.RFP, packet(0), asm.Byte), asm.RSh.Imm(asm.R2, 4), asm.JEq.Imm(asm.R2, 6, "tunnel 6"))
	var wire [2]byte
	binary.BigEndian.PutUint16(wire[:], f.TunnelPort)
	is := func(protocol, port int) {
		c.Add(
			asm.LoadMem(asm.R2, asm.RFP, packet(protocol), asm.Byte), asm.JNE.Imm(asm.R2, udp, "end"),
			asm.LoadMem(asm.R2, asm.RFP, packet(port), asm.Half),
			asm.JNE.Imm(asm.R2, int32(binary.NativeEndian.Uint16(wire[:])), "end"),
			asm.Ja.Label("record"),
		)
	}
	is(protocol4, port4)
	c.Label("tunnel 6")
	is(protocol6, port6)
}

// field returns the place of a record's field on the stack.
func field(at int) int16 { return int16(at - recordSize) }

// Filter selects dropped packets.
type Filter struct {
	// Addr is the source or the destination.
	Addr netip.Addr
	// TunnelPort selects UDP datagrams to that port, too, in both families; 0: none.
	TunnelPort uint16
	// Reasons select all packets that were dropped for one of these; the other fields are not used then. A reason that the
	// kernel does not have selects none.
	Reasons []string
}
