// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// The memory of the early part. What is zeroed costs nothing until it is used.
GLOBL ·arena(SB), NOPTR, $139264
GLOBL ·fakeG(SB), NOPTR, $1024
GLOBL ·fakeTLS(SB), NOPTR, $128

// The kernel jumps here: argc, argv and envp are on the stack. Compiled Go code finds its g by the thread's base, and
// looks in it (stackguard0, zero here) whether there is stack left.
TEXT _weft_early(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$158, AX	// arch_prctl
	MOVQ	$0x1002, DI	// ARCH_SET_FS
	LEAQ	·fakeTLS+64(SB), SI
	SYSCALL
	LEAQ	·fakeG(SB), CX
	MOVQ	CX, ·fakeTLS+56(SB)
	MOVQ	SP, BX
	SUBQ	$48, SP
	ANDQ	$~15, SP
	MOVQ	BX, 40(SP)
	MOVQ	BX, 0(SP)
	CALL	·start(SB)
	MOVL	8(SP), DI
	MOVQ	40(SP), SP
	CMPL	DI, $0
	JLT	ordinary
	MOVL	$231, AX	// exit_group
	SYSCALL
ordinary:
	JMP	_rt0_amd64_linux(SB)

// func memory() *store
TEXT ·memory(SB),NOSPLIT,$0-8
	LEAQ	·arena(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
