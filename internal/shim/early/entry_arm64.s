// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The memory of the early part. What is zeroed costs nothing until it is used.
GLOBL ·arena(SB), NOPTR, $139264
GLOBL ·fakeG(SB), NOPTR, $1024

// The kernel jumps here: argc, argv and envp are on the stack. Compiled Go code has its g in a register, and looks in it
// (stackguard0, zero here) whether there is stack left.
TEXT _weft_early(SB),NOSPLIT|NOFRAME,$0
	MOVD	RSP, R0
	SUB	$48, RSP
	MOVD	R0, 40(RSP)
	MOVD	R0, 8(RSP)
	MOVD	$·fakeG(SB), g
	CALL	·start(SB)
	MOVW	16(RSP), R0
	MOVD	40(RSP), R1
	MOVD	R1, RSP
	TBNZ	$31, R0, ordinary
	MOVD	$94, R8	// exit_group
	SVC
ordinary:
	JMP	_rt0_arm64_linux(SB)

// func memory() *store
TEXT ·memory(SB),NOSPLIT,$0-8
	MOVD	$·arena(SB), R0
	MOVD	R0, ret+0(FP)
	RET
