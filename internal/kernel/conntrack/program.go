// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/bpfcode"
	"github.com/weft-net/weft/internal/kernel/netlink"
)

// The kernel's functions that the programs are attached to.
const (
	// confirm is where a new connection gets into the table, after its first packet has passed all packet filters.
	confirm = "__nf_conntrack_confirm"
	// insert is where a program such as conntrackd puts a connection there.
	insert = "nf_conntrack_hash_check_insert"
	// destroy is where the memory of a connection is released: nothing refers to it any more.
	destroy = "nf_ct_destroy"
)

// module is the kernel's module with these functions.
const module = "nf_conntrack"

// Places in a record, which is on the program's stack from its beginning at -recordSize. Numbers have the host's byte
// order.
const (
	atKind     = 0 // u8
	atState    = 1 // u8, of TCP
	atCounted  = 2 // u8
	atCounters = 8 // packets and bytes of the original direction and of the reply, u64 each
	atTuples   = 40
	tuplesSize = 96 // both tuples, and what is between them
	recordSize = atTuples + tuplesSize

	scratch = -recordSize - 8 // 8 bytes
)

// The kinds in a record, which are also the places of their losses.
const (
	recordNew = iota
	recordEnd
	recordKinds
)

// inTable is IPS_CONFIRMED of linux/netfilter/nf_conntrack_common.h, and accept NF_ACCEPT of linux/netfilter.h.
const inTable, accept = 8, 1

// offsets are the places of fields in the kernel's structures, in bytes.
type offsets struct {
	entry                   int // of sk_buff: the connection, and in the lowest three bits what the packet is of it
	net, status, ext, state int // of nf_conn
	tuples                  int // of nf_conn: the first tuple
	reply                   int // from the first tuple to the other one
	acct                    int // of nf_ct_ext: the byte with the place of the counters, 0 if there are none
	inode                   int // of net
	src, srcPort, family    int // of a tuple
	dst, dstPort, protocol  int
	tupleSize               int
}

// readOffsets reads the offsets from the kernel's BTF. If connection tracking is a module, it is loaded first: what has been
// read of a module that was unloaded since is remembered, so that reading alone would not tell.
func readOffsets() (o offsets, err error) {
	notLoaded := loadModule()
	l, err := bpfcode.ReadLayout(module)
	if err != nil {
		return o, err
	}
	o = offsets{
		entry: l.Offset("sk_buff", "_nfct"),
		net:   l.Offset("nf_conn", "ct_net", "net"), status: l.Offset("nf_conn", "status"), ext: l.Offset("nf_conn", "ext"),
		state:  l.Offset("nf_conn", "proto", "tcp", "state"),
		tuples: l.Offset("nf_conn", "tuplehash", "tuple"), reply: l.Size("nf_conntrack_tuple_hash"),
		acct:  l.Offset("nf_ct_ext", "offset") + l.Value("nf_ct_ext_id", "NF_CT_EXT_ACCT"),
		inode: l.Offset("net", "ns", "inum"),
		src:   l.Offset("nf_conntrack_tuple", "src", "u3"), srcPort: l.Offset("nf_conntrack_tuple", "src", "u"),
		family: l.Offset("nf_conntrack_tuple", "src", "l3num"),
		dst:    l.Offset("nf_conntrack_tuple", "dst", "u3"), dstPort: l.Offset("nf_conntrack_tuple", "dst", "u"),
		protocol: l.Offset("nf_conntrack_tuple", "dst", "protonum"), tupleSize: l.Size("nf_conntrack_tuple"),
	}
	if err := l.Err(); err != nil {
		return o, errors.Join(err, notLoaded)
	}
	if o.reply+o.tupleSize > tuplesSize {
		return o, fmt.Errorf("the kernel's tuples are longer than %d bytes", tuplesSize)
	}
	return o, nil
}

// loadModule has the kernel load the module: it does with the first request about connections.
func loadModule() (err error) {
	sock, err := netlink.Open(nil, netlink.Options{Protocol: unix.NETLINK_NETFILTER, Datagrams: 1, Size: eventSize})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	var b netlink.Batch
	b.Netfilter(subsystem|msgStats, unix.NLM_F_ACK, unix.AF_UNSPEC, unix.NFNETLINK_V0, 0)
	return sock.Exchange(&b, func(a netlink.Answer) bool { return a.Done() })
}

// maps are descriptors of the programs' maps.
type maps struct{ ring, missed, entered int }

// program is a program under construction.
type program struct {
	bpfcode.Code
	offsets
	maps
	space uint32 // the inode of the network namespace
}

// entering returns the program at the beginning of confirm: it notes the packet and its connection. Two packets of one
// connection that pass at once are two connections until there; the later packet then gets the connection of the other
// one, which is not new again.
func (c program) entering() asm.Instructions {
	c.Add(asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R7, asm.R6, int16(c.entry), asm.DWord))
	c.note()
	c.Add(asm.StoreMem(asm.R0, 0, asm.R6, asm.DWord), asm.StoreMem(asm.R0, 8, asm.R7, asm.DWord))
	return c.end()
}

// confirmed returns the program at the end of confirm.
func (c program) confirmed() asm.Instructions {
	c.Add(
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R8, asm.R1, 8, asm.DWord),
		asm.JNE.Imm32(asm.R8, accept, "end"),
		asm.LoadMem(asm.R7, asm.R6, int16(c.entry), asm.DWord), asm.And.Imm(asm.R7, ^7), asm.JEq.Imm(asm.R7, 0, "end"),
	)
	c.note()
	c.Add( // a note of another packet is of one that came in between
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.JNE.Reg(asm.R1, asm.R6, "new"),
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.And.Imm(asm.R1, ^7), asm.JNE.Reg(asm.R1, asm.R7, "end"),
	)
	c.Label("new")
	c.record(recordNew)
	return c.end()
}

// inserted returns the program at the end of insert.
func (c program) inserted() asm.Instructions {
	c.Add(
		asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord), asm.LoadMem(asm.R8, asm.R1, 8, asm.DWord), asm.JNE.Imm32(asm.R8, 0, "end"),
	)
	c.record(recordNew)
	return c.end()
}

// destroyed returns the program at the beginning of destroy.
func (c program) destroyed() asm.Instructions {
	c.Add(asm.LoadMem(asm.R7, asm.R1, 0, asm.DWord))
	c.record(recordEnd)
	return c.end()
}

// note has R0 point at this processor's note.
func (c *program) note() {
	c.Add(
		asm.StoreImm(asm.RFP, scratch, 0, asm.Word), asm.LoadMapPtr(asm.R1, c.entered),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, scratch), asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
	)
}

// record writes a record of the connection at R7, if it is one of the namespace that was in the table.
func (c *program) record(kind int) {
	c.Pointer(asm.R8, asm.R7, c.net, scratch)
	c.Read(scratch, 4, asm.R8, c.inode)
	c.Add(asm.LoadMem(asm.R1, asm.RFP, scratch, asm.Word), asm.JNE.Imm32(asm.R1, int32(c.space), "end"))
	c.Read(scratch, 8, asm.R7, c.status)
	c.Add(asm.LoadMem(asm.R1, asm.RFP, scratch, asm.DWord), asm.And.Imm(asm.R1, inTable), asm.JEq.Imm(asm.R1, 0, "end"))
	c.Clear(scratch)
	c.Add(asm.StoreImm(asm.RFP, field(atKind), int64(kind), asm.Byte))
	c.Read(int32(field(atState)), 1, asm.R7, c.state)
	c.Read(int32(field(atTuples)), tuplesSize, asm.R7, c.tuples)
	if kind == recordEnd {
		c.Pointer(asm.R8, asm.R7, c.ext, scratch)
		c.Add(asm.JEq.Imm(asm.R8, 0, "send"))
		c.Read(scratch, 1, asm.R8, c.acct)
		c.Add(
			asm.LoadMem(asm.R3, asm.RFP, scratch, asm.DWord), asm.JEq.Imm(asm.R3, 0, "send"), asm.Add.Reg(asm.R3, asm.R8),
			asm.StoreImm(asm.RFP, field(atCounted), 1, asm.Byte),
		)
		c.Call(int32(field(atCounters)), atTuples-atCounters)
	}
	c.Label("send")
	c.Add(
		asm.LoadMapPtr(asm.R1, c.ring), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -recordSize),
		asm.Mov.Imm(asm.R3, recordSize), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
	)
	c.Count(c.missed, int32(kind), scratch, "end")
}

// end returns the program.
func (c *program) end() asm.Instructions {
	c.Label("end")
	c.Add(asm.Mov.Imm(asm.R0, 0), asm.Return())
	return c.Instructions()
}

// field returns the place of a record's field on the stack.
func field(at int) int16 { return int16(at - recordSize) }
