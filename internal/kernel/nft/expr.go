// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"golang.org/x/sys/unix"
)

// expr is one expression of a rule, as the kernel's little machine runs it: load something into a register, compare,
// decide. Op is the kernel's name of it and says which of the fields mean something.
type expr struct {
	op         string
	dreg, sreg reg
	addr, port reg    // nat
	key        uint32 // meta, ct: what; payload: base; cmp, range, dynset: operator; nat, reject: type; fib: result
	off, size  uint32 // payload; size also of bitwise
	data, more []byte // cmp: value; bitwise: mask and xor; range: from and to; immediate: value
	set        string // lookup, dynset
	flags      uint32
	family     uint32  // nat
	code       []byte  // reject
	group      *uint16 // log
	rate, per  uint64  // limit: so many in so many seconds
	burst      uint32
	timeout    uint64 // dynset, in milliseconds
	csum       uint32 // payload that is written: the kind of its checksum, and where that is
	csumAt     uint32
	prefix     string // log
	verdict    *verdict
	// strange is set when the kernel said more than weft ever writes.
	strange bool
}

// reg is a register, by the 4-byte word it begins at, plus one; zero is none.
type reg int

// verdictReg is the register whose value decides.
const verdictReg reg = -1

func word(n int) reg { return reg(n + 1) }

func (r reg) word() int { return int(r) - 1 }

// number is the kernel's number of the register: of sixteen bytes where one begins there, else of four.
func (r reg) number() uint32 {
	switch w := r.word(); {
	case r == verdictReg:
		return unix.NFT_REG_VERDICT
	case w%4 == 0:
		return uint32(unix.NFT_REG_1 + w/4)
	default:
		return uint32(unix.NFT_REG32_00 + w)
	}
}

func regNumbered(n uint32) reg {
	switch {
	case n == unix.NFT_REG_VERDICT:
		return verdictReg
	case n < unix.NFT_REG32_00:
		return word(int(n-unix.NFT_REG_1) * 4)
	}
	return word(int(n - unix.NFT_REG32_00))
}
