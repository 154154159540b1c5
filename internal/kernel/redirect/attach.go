// SPDX-License-Identifier: Apache-2.0

package redirect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Loaded is a program in the kernel. It exists as long as this, or any link that runs it.
type Loaded struct {
	*ebpf.Program
	Name string
}

// Load loads a program into the kernel.
func Load(p Program) (Loaded, error) {
	program, err := ebpf.NewProgramWithOptions(p.spec(), ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return Loaded{}, fmt.Errorf("load eBPF program: %w", err)
	}
	return Loaded{Program: program, Name: p.Name}, nil
}

// Attach makes a link run a program on arriving packets, replacing an existing one of weft's. The kernel waits for an
// RCU grace period: tens of milliseconds, during which no other link of the host can be changed.
func Attach(ns *netns.NS, index int, program Loaded) error {
	return ns.Do(func() error {
		have, err := attached(index)
		if err != nil {
			return err
		}
		defer have.close()
		opts := link.RawAttachProgramOptions{
			Target: index, Program: program.Program, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail(),
		}
		if len(have) > 0 {
			opts.Anchor = link.ReplaceProgram(have[0].Program)
		}
		if err := link.RawAttachProgram(opts); err != nil {
			return fmt.Errorf("attach eBPF program: %w", err)
		}
		return nil
	})
}

// Attached returns the name of weft's program for a link's arriving packets; "" is none, also if the kernel has no tcx.
func Attached(ns *netns.NS, index int) (name string, err error) {
	err = ns.Do(func() error {
		have, err := attached(index)
		defer have.close()
		if len(have) > 0 {
			name = have[0].name
		}
		return err
	})
	if missing(err) {
		return "", nil
	}
	return name, err
}

// Detach detaches weft's programs from a link; a missing link has none.
func Detach(ns *netns.NS, index int) error {
	err := ns.Do(func() error {
		have, err := attached(index)
		if err != nil {
			return err
		}
		defer have.close()
		var errs []error
		for _, p := range have {
			errs = append(
				errs,
				link.RawDetachProgram(link.RawDetachProgramOptions{
					Target: index, Program: p.Program, Attach: ebpf.AttachTCXIngress,
				}),
			)
		}
		return errors.Join(errs...)
	})
	if missing(err) {
		return nil
	}
	return err
}

// missing reports whether an error is about a missing link, or a kernel or user without support for such programs.
func missing(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT)
}

type mine struct {
	*ebpf.Program
	name string
}

type programs []mine

func (p programs) close() {
	for _, one := range p {
		_ = one.Close()
	}
}

// attached returns weft's programs on a link of the thread's namespace.
func attached(index int) (programs, error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return nil, fmt.Errorf("programs of link %d: %w", index, err)
	}
	var out programs
	for _, f := range found.Programs {
		p, err := ebpf.NewProgramFromID(f.ID)
		if errors.Is(err, unix.ENOENT) {
			continue // it was detached meanwhile
		}
		if err != nil {
			return out, fmt.Errorf("program %d of link %d: %w", f.ID, index, err)
		}
		info, err := p.Info()
		if err != nil || !strings.HasPrefix(info.Name, mark) {
			_ = p.Close()
			continue
		}
		out = append(out, mine{Program: p, name: info.Name})
	}
	return out, nil
}
