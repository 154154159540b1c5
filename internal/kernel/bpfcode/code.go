// SPDX-License-Identifier: Apache-2.0

// Package bpfcode is for small eBPF programs that read the kernel's structures: the places of fields, from the kernel's BTF,
// and instructions that read them. Such programs are built by the instruction, so that weft's programs need no loader of
// object files.
package bpfcode

import "github.com/cilium/ebpf/asm"

// License is that of programs with helpers that read the kernel's memory, which are for programs that are available under
// the GPL, too.
const License = "Dual MIT/GPL"

// Code is a program under construction. The zero value is empty.
type Code struct {
	out  asm.Instructions
	name string // of the next instruction
}

// Instructions returns the program.
func (c *Code) Instructions() asm.Instructions { return c.out }

// Add adds instructions.
func (c *Code) Add(all ...asm.Instruction) {
	if c.name != "" {
		all[0] = all[0].WithSymbol(c.name)
		c.name = ""
	}
	c.out = append(c.out, all...)
}

// Label names the next instruction. Two names in a row are two instructions.
func (c *Code) Label(name string) {
	if c.name != "" {
		c.Add(asm.Mov.Reg(asm.R2, asm.R2))
	}
	c.name = name
}

// Clear writes zeros onto the stack from a place, a multiple of 8 below 0, up to its end.
func (c *Code) Clear(from int) {
	c.Add(asm.Mov.Imm(asm.R0, 0))
	for at := from; at < 0; at += 8 {
		c.Add(asm.StoreMem(asm.RFP, int16(at), asm.R0, asm.DWord))
	}
}

// Read reads size bytes of kernel memory, at an offset of a register, onto the stack. It changes R0 to R5, as Call, Pointer
// and Count do.
func (c *Code) Read(to int32, size int32, from asm.Register, offset int) {
	c.Add(asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, int32(offset)))
	c.Call(to, size)
}

// Call reads kernel memory at R3 onto the stack.
func (c *Code) Call(to, size int32) {
	c.Add(asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, to), asm.Mov.Imm(asm.R2, size), asm.FnProbeReadKernel.Call())
}

// Pointer reads a pointer at an offset of a register into another one, by way of 8 bytes of the stack, which it clears.
func (c *Code) Pointer(to, from asm.Register, offset int, scratch int16) {
	c.Read(int32(scratch), 8, from, offset)
	c.Add(
		asm.LoadMem(to, asm.RFP, scratch, asm.DWord),
		asm.Mov.Imm(asm.R0, 0), asm.StoreMem(asm.RFP, scratch, asm.R0, asm.DWord),
	)
}

// Count adds one to an element of an array of 64-bit numbers, and goes to a label if the array has no such element. It uses 4
// bytes of the stack.
func (c *Code) Count(array int, element int32, scratch int16, otherwise string) {
	c.Add(
		asm.Mov.Imm(asm.R0, element), asm.StoreMem(asm.RFP, scratch, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, array), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(scratch)),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, otherwise),
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
	)
}
