// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/weft-net/weft/internal/netns"
)

// sink drops all frames that a link receives until it is closed, so that only the path to the link is measured.
func sink(ns *netns.NS, name string) (link.Link, error) {
	l, err := linkOf(ns, name)
	if err != nil {
		return nil, err
	}
	const drop = 2 // TCX_DROP
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "bench_sink", Type: ebpf.SchedCLS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	defer func() { _ = program.Close() }()
	var s link.Link
	err = ns.Do(func() error {
		s, err = link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: program, Attach: ebpf.AttachTCXIngress})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sink on %s: %w", name, err)
	}
	return s, nil
}
