// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
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
func readOffsets(spec *btf.Spec) (o offsets, err error) {
	var errs []error
	field := func(structure string, path ...string) int {
		var s *btf.Struct
		if err := spec.TypeByName(structure, &s); err != nil {
			errs = append(errs, fmt.Errorf("struct %s: %w", structure, err))
			return 0
		}
		bits, ok := offsetOf(s.Members, path)
		if !ok {
			errs = append(errs, fmt.Errorf("struct %s has no field %v", structure, path))
		}
		return int(bits / 8)
	}
	o = offsets{
		head: field("sk_buff", "head"), network: field("sk_buff", "network_header"), device: field("sk_buff", "dev"),
		mark:  field("sk_buff", "mark"),
		index: field("net_device", "ifindex"), name: field("net_device", "name"),
		namespace: field("net_device", "nd_net", "net"),
		inode:     field("net", "ns", "inum"),
	}
	return o, errors.Join(errs...)
}

// offsetOf returns the offset of a field in bits. Members without a name are parts of their structure.
func offsetOf(members []btf.Member, path []string) (btf.Bits, bool) {
	for _, m := range members {
		inner := structMembers(m.Type)
		switch {
		case m.Name == path[0] && len(path) == 1:
			return m.Offset, true
		case m.Name == path[0]:
			at, ok := offsetOf(inner, path[1:])
			return m.Offset + at, ok
		case m.Name == "":
			if at, ok := offsetOf(inner, path); ok {
				return m.Offset + at, true
			}
		}
	}
	return 0, false
}

func structMembers(t btf.Type) []btf.Member {
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		return t.Members
	case *btf.Union:
		return t.Members
	}
	return nil
}

// code returns the program: it writes a record into the ring for each dropped packet of the address, and for each
// dropped packet of a tunnel to the port; or for those of the reasons, if there are any. ring is the ring's file descriptor,
// missed that of the array that counts the records for which the ring has no room.
func code(o offsets, f Filter, reasons []uint32, ring, missed int) asm.Instructions {
	c := program{}
	// R6: the packet (sk_buff), R7: its head, R8: the device. The context has packet, location and reason.
	c.add(
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R7, asm.R1, 8, asm.DWord),
		asm.LoadMem(asm.R8, asm.R1, 16, asm.DWord), asm.Mov.Imm(asm.R0, 0),
	)
	for at := scratch; at < 0; at += 8 {
		c.add(asm.StoreMem(asm.RFP, int16(at), asm.R0, asm.DWord))
	}
	c.add(
		asm.StoreMem(asm.RFP, field(atLocation), asm.R7, asm.DWord),
		asm.StoreMem(asm.RFP, field(atReason), asm.R8, asm.Word),
	)
	c.reasons(f, reasons)
	c.pointer(asm.R7, asm.R6, o.head)
	c.read(scratch, 2, asm.R6, o.network)
	c.add(asm.LoadMem(asm.R3, asm.RFP, scratch, asm.DWord), asm.Add.Reg(asm.R3, asm.R7))
	c.call(int32(field(atPacket)), packetSize)
	if len(f.Reasons) == 0 {
		c.filter(f)
	}

	c.label("record")
	c.read(int32(field(atMark)), 4, asm.R6, o.mark)
	c.pointer(asm.R8, asm.R6, o.device)
	c.add(asm.JEq.Imm(asm.R8, 0, "send"))
	c.read(int32(field(atIndex)), 4, asm.R8, o.index)
	c.read(int32(field(atName)), 16, asm.R8, o.name)
	c.pointer(asm.R7, asm.R8, o.namespace)
	c.add(asm.JEq.Imm(asm.R7, 0, "send"))
	c.read(int32(field(atNamespace)), 4, asm.R7, o.inode)
	c.label("send")
	c.add(
		asm.LoadMapPtr(asm.R1, ring), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -recordSize),
		asm.Mov.Imm(asm.R3, recordSize), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
	)
	c.add(
		asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.RFP, scratch, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, missed), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, scratch),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
	)
	c.label("end")
	c.add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return c.out
}

// reasons goes to end for drops of other reasons than those of the filter, if it has any.
func (c *program) reasons(f Filter, numbers []uint32) {
	if len(f.Reasons) == 0 {
		return
	}
	for _, n := range numbers {
		c.add(asm.JEq.Imm(asm.R8, int32(n), "wanted"))
	}
	c.add(asm.Ja.Label("end"))
	c.label("wanted")
}

// filter goes to record for packets of the filter, and else to end.
func (c *program) filter(f Filter) {
	packet := func(at int) int16 { return field(atPacket + at) }
	version, src, dst := int32(4), src4, dst4
	if f.Addr.Is6() {
		version, src, dst = 6, src6, dst6
	}
	c.add(asm.LoadMem(asm.R2, asm.RFP, packet(0), asm.Byte), asm.RSh.Imm(asm.R2, 4), asm.JNE.Imm(asm.R2, version, "other"))
	for _, at := range []int{src, dst} {
		next := fmt.Sprintf("not %d", at)
		addr := f.Addr.AsSlice()
		for i := 0; i < len(addr); i += 4 {
			c.add(
				asm.LoadMem(asm.R2, asm.RFP, packet(at+i), asm.Word),
				asm.LoadImm(asm.R3, int64(binary.NativeEndian.Uint32(addr[i:])), asm.DWord), asm.JNE.Reg(asm.R2, asm.R3, next),
			)
		}
		c.add(asm.Ja.Label("record"))
		c.label(next)
	}
	c.label("other")
	if f.TunnelPort == 0 {
		c.add(asm.Ja.Label("end"))
		return
	}
	// The tunnel may be of the other family.
	c.add(asm.LoadMem(asm.R2, asm.RFP, packet(0), asm.Byte), asm.RSh.Imm(asm.R2, 4), asm.JEq.Imm(asm.R2, 6, "tunnel 6"))
	var wire [2]byte
	binary.BigEndian.PutUint16(wire[:], f.TunnelPort)
	is := func(protocol, port int) {
		c.add(
			asm.LoadMem(asm.R2, asm.RFP, packet(protocol), asm.Byte), asm.JNE.Imm(asm.R2, udp, "end"),
			asm.LoadMem(asm.R2, asm.RFP, packet(port), asm.Half),
			asm.JNE.Imm(asm.R2, int32(binary.NativeEndian.Uint16(wire[:])), "end"),
			asm.Ja.Label("record"),
		)
	}
	is(protocol4, port4)
	c.label("tunnel 6")
	is(protocol6, port6)
}

// field returns the place of a record's field on the stack.
func field(at int) int16 { return int16(at - recordSize) }

// program is a program under construction.
type program struct {
	out  asm.Instructions
	name string // of the next instruction
}

func (c *program) add(all ...asm.Instruction) {
	if c.name != "" {
		all[0] = all[0].WithSymbol(c.name)
		c.name = ""
	}
	c.out = append(c.out, all...)
}

// label names the next instruction. Two names in a row are two instructions.
func (c *program) label(name string) {
	if c.name != "" {
		c.add(asm.Mov.Reg(asm.R2, asm.R2))
	}
	c.name = name
}

// read reads kernel memory at an offset of a register onto the stack.
func (c *program) read(to int32, size int32, from asm.Register, offset int) {
	c.add(asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, int32(offset)))
	c.call(to, size)
}

// call reads kernel memory at R3 onto the stack.
func (c *program) call(to, size int32) {
	c.add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, to), asm.Mov.Imm(asm.R2, size), asm.FnProbeReadKernel.Call())
}

// pointer reads a pointer at an offset of a register into another one.
func (c *program) pointer(to, from asm.Register, offset int) {
	c.read(scratch, 8, from, offset)
	c.add(
		asm.LoadMem(to, asm.RFP, scratch, asm.DWord),
		asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.RFP, scratch, asm.R0, asm.DWord),
	)
}

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
