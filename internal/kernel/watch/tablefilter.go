// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
)

// Offsets in a message: of its length and type (struct nlmsghdr), and of the table's name, which is the first attribute
// of each message about a part of a table.
const lengthAt, typeAt, portAt, tableAt = 0, 4, 12, unix.NLMSG_HDRLEN + 4 + unix.NLA_HDRLEN

// lowByte returns the offset of the lowest byte of a number in the host's byte order.
func lowByte(offset, size uint32) uint32 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return offset + size - 1
	}
	return offset
}

// tableFilter selects messages about nft tables.
type tableFilter struct {
	// deleted are the types that are selected whatever the table.
	deleted []uint32
	// types are those that are selected for tables with one of the prefixes; none means all.
	types    []uint32
	prefixes []string
}

// deletedRules are the types of messages about whatever is deleted.
func deletedRules() []uint32 {
	return []uint32{
		unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM,
	}
}

// scanned is how many messages of a packet the kernel compares, in a program that older kernels accept (optmem_max).
const scanned = 16

// program is the part of the filter that the kernel evaluates: it passes packets with a selected message, and packets
// with more messages than it compares. The kernel's programs have no loops, so the comparison is repeated.
func (f tableFilter) program() []step {
	const all = 0xffffffff
	program := []step{{label: "scan", code: unix.BPF_LDX | unix.BPF_IMM}}
	for i := range scanned {
		program = append(program, f.compare(strconv.Itoa(i))...)
	}
	return append(program, step{code: unix.BPF_RET | unix.BPF_K, k: all})
}

// compare compares the message at the offset in the register X, and moves X to the next one. A load behind the end of
// the packet ends the program, and the packet is not passed: no message about a table is so short that the comparison
// of its name would do that.
func (f tableFilter) compare(id string) []step {
	const (
		word, octet = unix.BPF_LD | unix.BPF_W | unix.BPF_IND, unix.BPF_LD | unix.BPF_B | unix.BPF_IND
		equal, all  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, 0xffffffff
		alu         = unix.BPF_ALU
	)
	yes, no := "yes"+id, "no"+id
	program := []step{{code: octet, k: lowByte(typeAt, 2)}}
	for _, typ := range f.deleted {
		program = append(program, step{code: equal, k: typ, yes: yes})
	}
	for i, typ := range f.types {
		last := ""
		if i == len(f.types)-1 {
			last = no
		}
		program = append(program, step{code: equal, k: typ, yes: "prefix0 " + id, no: last})
	}
	for i, prefix := range f.prefixes {
		other := "prefix" + strconv.Itoa(i+1) + " " + id
		if i == len(f.prefixes)-1 {
			other = no
		}
		for at, rest := uint32(tableAt), []byte(prefix); len(rest) > 0; {
			s := step{code: octet, k: at}
			want, size := uint32(rest[0]), 1
			if len(rest) >= 4 { // loads use network byte order
				s.code, want, size = word, binary.BigEndian.Uint32(rest), 4
			}
			if at == tableAt {
				s.label = "prefix" + strconv.Itoa(i) + " " + id
			}
			rest, at = rest[size:], at+uint32(size)
			then := ""
			if len(rest) == 0 {
				then = yes
			}
			program = append(program, s, step{code: equal, k: want, yes: then, no: other})
		}
	}
	low := lowByte(lengthAt, 4)
	return append(program,
		step{label: yes, code: unix.BPF_RET | unix.BPF_K, k: all},
		step{label: no, code: octet, k: low ^ 1}, // a packet is shorter than 64 KiB: two bytes of the length
		step{code: alu | unix.BPF_LSH | unix.BPF_K, k: 8},
		step{code: unix.BPF_ST},
		step{code: octet, k: low},
		step{code: unix.BPF_STX, k: 1},
		step{code: unix.BPF_LDX | unix.BPF_MEM},
		step{code: alu | unix.BPF_ADD | unix.BPF_X},
		step{code: alu | unix.BPF_ADD | unix.BPF_K, k: unix.NLMSG_ALIGNTO - 1},
		step{code: alu | unix.BPF_AND | unix.BPF_K, k: all &^ (unix.NLMSG_ALIGNTO - 1)},
		step{code: unix.BPF_LDX | unix.BPF_MEM, k: 1},
		step{code: alu | unix.BPF_ADD | unix.BPF_X},
		step{code: unix.BPF_MISC | unix.BPF_TAX})
}

// messages calls heard with the table's name for each selected message of a packet, and reports whether all of it was
// understood.
func (f tableFilter) messages(b []byte, heard func(table string)) (whole bool) {
	return netlink.Messages(b, func(a netlink.Answer) {
		const named = tableAt - unix.NLMSG_HDRLEN
		typ := uint32(a.Kind & 0xff)
		if a.Kind>>8 != unix.NFNL_SUBSYS_NFTABLES || typ == unix.NFT_MSG_NEWGEN || len(a.Body) < named {
			return
		}
		_, attrs, _ := a.Netfilter()
		const table = 1 // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, NFTA_SET_TABLE …
		name := string(netlink.Find(attrs, table))
		if slices.Contains(f.deleted, typ) || (len(f.types) == 0 || slices.Contains(f.types, typ)) &&
			slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			heard(strings.TrimRight(name, "\x00"))
		}
	})
}

// exceptElements returns a filter that drops packets from that port that begin with elements of a set, and continues
// with the step of the label scan for others.
func exceptElements(port uint32) []step {
	const equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	native := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, port)) // loads use network byte order
	return []step{
		{code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, k: portAt},
		{code: equal, k: native, no: "scan"},
		{code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, k: lowByte(typeAt, 2)},
		{code: equal, k: unix.NFT_MSG_NEWSETELEM, yes: drop},
		{code: equal, k: unix.NFT_MSG_DELSETELEM, yes: drop, no: "scan"},
		{label: drop, code: unix.BPF_RET | unix.BPF_K},
	}
}
