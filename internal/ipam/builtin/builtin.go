// SPDX-License-Identifier: Apache-2.0

// Package builtin lists weft's allocators, for programs that only validate configurations.
package builtin

import (
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
)

// Readers returns the allocators by their types.
func Readers(readFile func(string) ([]byte, error)) map[string]ipam.Allocator {
	host, fixed, leased := hostlocal.New(hostlocal.Config{}), static.New(), dhcp.New(nil)
	table := map[string]ipam.Allocator{host.Type(): host, fixed.Type(): fixed, leased.Type(): leased}
	for _, shared := range blocks.Readers(readFile) {
		table[shared.Type()] = shared
	}
	return table
}
