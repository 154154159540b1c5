// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// The numbers of linux/pkt_cls.h for eBPF filters.
const (
	bpfKind   = "bpf"
	bpfFD     = 6
	bpfName   = 7
	bpfFlags  = 8
	bpfDirect = 1 // TCA_BPF_FLAG_ACT_DIRECT
)

// AddProgram requests an eBPF program, by its descriptor, as the filter of packets that arrive on a link of a join. It has the
// priority of a join's last filter.
func AddProgram(j state.Join, link string, index, fd int, name string) []*rtnl.Message {
	m := rtnl.New(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add program of", j,
		header(index, 0, ingressHandle, all(0).info()))
	m.String(unix.TCA_KIND, bpfKind)
	m.Nest(unix.TCA_OPTIONS, func() {
		m.Uint32(bpfFD, uint32(fd))
		m.String(bpfName, name)
		m.Uint32(bpfFlags, bpfDirect)
	})
	return []*rtnl.Message{newIngress(ingressOf(link), index), m}
}

// ProgramFilter returns the filter that runs a program.
func ProgramFilter(name string) Filter { return Filter(bpfKind + " " + name) }
