// SPDX-License-Identifier: Apache-2.0

package lang

import (
	"golang.org/x/sys/unix"
)

// Expr is one expression of a rule, an instruction of the kernel's nf_tables interpreter: load a value into a register,
// compare, set a verdict. Name is the kernel's name and determines which fields are used.
type Expr struct {
	Name             string
	Dreg, Sreg       Register
	AddrReg, PortReg Register // nat
	// meta, ct: key; payload: base; cmp, range, dynset: operator; nat, reject: type; fib: result
	Key          uint32
	Offset, Size uint32 // payload; size also of bitwise
	Data, More   []byte // cmp: value; bitwise: mask and xor; range: from and to; immediate: value
	Set          string // lookup, dynset
	Flags        uint32
	Family       uint32  // nat
	Code         []byte  // reject
	Group        *uint16 // log
	Rate, Per    uint64  // limit: so many in so many seconds
	Burst        uint32
	Timeout      uint64 // dynset, in milliseconds
	Csum         uint32 // payload that is written: the kind of its checksum, and its offset
	CsumOffset   uint32
	Prefix       string // log
	Verdict      *Verdict
	// Unknown is set when the kernel's expression has attributes that weft never writes.
	Unknown bool
}

// Register is a register, by the 4-byte word it begins at, plus one; zero is none.
type Register int

// verdictReg is the register of the verdict.
const verdictReg Register = -1

func word(n int) Register { return Register(n + 1) }

func (r Register) word() int { return int(r) - 1 }

// Number returns the kernel's number of the register: of sixteen bytes if one begins there, else of four.
func (r Register) Number() uint32 {
	switch w := r.word(); {
	case r == verdictReg:
		return unix.NFT_REG_VERDICT
	case w%4 == 0:
		return uint32(unix.NFT_REG_1 + w/4)
	default:
		return uint32(unix.NFT_REG32_00 + w)
	}
}

// RegisterByNumber returns the register with a kernel number: four of 16 bytes, the same memory again in words of 4.
func RegisterByNumber(n uint32) Register {
	switch {
	case n == unix.NFT_REG_VERDICT:
		return verdictReg
	case n < unix.NFT_REG32_00:
		return word(int(n-unix.NFT_REG_1) * 4)
	}
	return word(int(n - unix.NFT_REG32_00))
}
