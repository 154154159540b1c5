// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package early

import "github.com/weft-net/weft/internal/wire"

// store is all the memory there is before the runtime starts. It stays when the runtime has started, which does not look
// into it: why only ever refers to constants.
type store struct {
	// why is what the agent did instead of answering, empty when it was not asked.
	why wire.Error
	// buf holds the request, later the answer.
	buf [bufSize]byte
}

const (
	bufSize   = 128 << 10
	arenaSize = 139264 // of entry_*.s
)

// memory is where the store lies.
func memory() *store

// Why is what kept the agent from answering when it was asked before the runtime started; empty when it was not asked.
func Why() wire.Error { return memory().why }
