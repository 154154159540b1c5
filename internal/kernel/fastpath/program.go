// SPDX-License-Identifier: Apache-2.0

package fastpath

import (
	_ "embed" // the programs
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The programs' instructions, as clang compiles fastpath.c. In place of a map's descriptor there is its place in maps. They
// are not an object file: a loader of these is as large as the rest of this package.
var (
	//go:embed in.bpf
	codeIn string
	//go:embed out.bpf
	codeOut string
)

const (
	nameIn, nameOut = "weft_fast_in", "weft_fast_out"
	// license: bpf_fib_lookup is for programs that are available under the GPL, too, which these are.
	license = "Dual MIT/GPL"
)

// Sizes of keys and values, and of maps.
const (
	maxFlows, maxLinks, maxOwners                                      = 32768, 4096, 16384
	keySize, flowSize, settingsSize, countersSize, indexSize, addrSize = 44, 88, 24, 24, 4, 16
	noPrealloc                                                         = 1 // BPF_F_NO_PREALLOC
)

// mapSpecs are the programs' maps, in the order of their definitions in fastpath.c.
func mapSpecs() []ebpf.MapSpec {
	return []ebpf.MapSpec{
		{Name: "weft_settings", Type: ebpf.Array, KeySize: indexSize, ValueSize: settingsSize, MaxEntries: 1},
		{Name: "weft_flows", Type: ebpf.LRUHash, KeySize: keySize, ValueSize: flowSize, MaxEntries: maxFlows},
		{
			Name: "weft_links", Type: ebpf.Hash, KeySize: indexSize, ValueSize: indexSize, MaxEntries: maxLinks,
			Flags: noPrealloc,
		},
		{
			Name: "weft_owners", Type: ebpf.Hash, KeySize: addrSize, ValueSize: indexSize, MaxEntries: maxOwners,
			Flags: noPrealloc,
		},
		{Name: "weft_counters", Type: ebpf.PerCPUArray, KeySize: indexSize, ValueSize: countersSize, MaxEntries: 1},
	}
}

// places are the fields of the maps, in their order.
func (p *Path) places() []**ebpf.Map {
	return []**ebpf.Map{&p.settings, &p.flows, &p.links, &p.owners, &p.count}
}

// program loads a program.
func (p *Path) program(name, code string, at ebpf.AttachType) (*ebpf.Program, error) {
	instructions, err := asm.AppendInstructions(nil, strings.NewReader(code), binary.LittleEndian, "linux")
	if err != nil {
		return nil, fmt.Errorf("eBPF program %s: %w", name, err)
	}
	for i := range instructions {
		if !instructions[i].IsLoadFromMap() {
			continue
		}
		if err := instructions[i].AssociateMap(*p.places()[instructions[i].Constant]); err != nil {
			return nil, fmt.Errorf("eBPF program %s: %w", name, err)
		}
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.SchedCLS, AttachType: at, License: license, Instructions: instructions,
	})
	if err != nil {
		return nil, fmt.Errorf("eBPF program %s (CAP_BPF and CAP_NET_ADMIN): %w", name, err)
	}
	return program, nil
}
