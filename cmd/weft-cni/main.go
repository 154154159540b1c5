// SPDX-License-Identifier: Apache-2.0

// Command weft-cni is the CNI plugin that hands its calls to the weft agent. It starts once per call: nothing but the
// standard library's system calls, internal/shim and internal/wire may be imported here. Linked with
// -ldflags=-E=_weft_early it does the ordinary call before the Go runtime starts (package early).
package main

import (
	"syscall"

	"github.com/weft-net/weft/internal/shim"
	"github.com/weft-net/weft/internal/shim/early"
)

func main() {
	syscall.Exit(shim.Run(shim.Env{
		Environ: syscall.Environ(), Stdin: 0, Stdout: 1, Stderr: 2, UnixNano: unixNano, Pid: syscall.Getpid(), Argv0: argv0(),
		Why: early.Why(),
	}))
}

// argv0 is the program's first argument, for which package os would have to be linked.
func argv0() []byte {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, 4096)
	n, err := syscall.Read(fd, b)
	if err != nil {
		return nil
	}
	for i, c := range b[:n] {
		if c == 0 {
			return b[:i]
		}
	}
	return b[:n]
}

func unixNano() int64 {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		return 0
	}
	return tv.Nano()
}
