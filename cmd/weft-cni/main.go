// SPDX-License-Identifier: Apache-2.0

// Command weft-cni is the CNI plugin that forwards its calls to the weft agent. It starts once per call: nothing but the
// standard library, internal/cni/shim and internal/cni/wire may be imported here.
package main

import (
	"os"
	"time"

	"github.com/weft-net/weft/internal/cni/shim"
)

func main() {
	os.Exit(shim.Run(shim.Env{
		Environ: os.Environ(), Stdin: 0, Stdout: 1, Stderr: 2, Pid: os.Getpid(), Argv0: os.Args[0],
		UnixNano: func() int64 { return time.Now().UnixNano() },
	}))
}
