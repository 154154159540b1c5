// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Verdicts of the filter.
const drop, pass = "drop", "pass"

// step is one instruction; yes and no name where a jump leads to, empty is the next one.
type step struct {
	label   string
	code    uint16
	k       uint32
	yes, no string
}

// filter is the kernel's part of Scope: everything that takes something away, and of what is made or set only what
// replaces something: routes, permanent neighbors, links that went down. Of the watched namespace also links, and
// single settings, that have changed. What a bridge says of its ports is no change of the link; nor are the many
// messages about a link that is being made.
func (s Scope) filter() []unix.SockFilter {
	const (
		word, octet = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		equal, bits = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	)
	// at is the place of the lowest byte of a number, which is in the machine's order.
	at := func(offset, size uint32) uint32 {
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			return offset + size - 1
		}
		return offset
	}
	const length, port, kind, family, flags, change, all = 0, 12, 4, 16, 24, 28, 0xffffffff
	const oneSetting = unix.NLMSG_HDRLEN + 4 + 8 + 8 // struct netconfmsg, the link's index, the setting
	program := []step{
		{code: octet, k: at(kind, 2)},
		{code: equal, k: unix.RTM_DELLINK, yes: pass},
		{code: equal, k: unix.RTM_NEWLINK, yes: "link"},
		{code: equal, k: unix.RTM_DELNEIGH, yes: "entry"},
		{code: equal, k: unix.RTM_NEWROUTE, yes: "route"},
	}
	if s.Port != 0 {
		own := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, s.Port)) // loads are in the network's order
		program = append([]step{{code: word, k: port}, {code: equal, k: own, yes: drop}}, program...)
	}
	gone := []uint32{
		unix.RTM_DELADDR, unix.RTM_DELROUTE, unix.RTM_DELRULE, unix.RTM_DELQDISC, unix.RTM_DELTFILTER, unix.RTM_DELNSID,
	}
	set := drop // a link that changed without going up or down
	if !s.Others {
		set = pass
		program = append(program, step{code: equal, k: unix.RTM_NEWNEIGH, yes: "permanent"}, step{
			code: equal, k: unix.RTM_NEWNETCONF, yes: "setting",
		})
	}
	for _, typ := range gone {
		program = append(program, step{code: equal, k: typ, yes: pass})
	}
	program = append(program,
		step{code: unix.BPF_RET | unix.BPF_K},
		step{label: "route", code: octet, k: at(6, 2) ^ 1}, // NLM_F_REPLACE is bit 8 of the flags
		step{code: bits, k: unix.NLM_F_REPLACE >> 8, yes: pass, no: drop},
		step{label: "permanent", code: octet, k: at(24, 2)}, // struct ndmsg
		step{code: bits, k: unix.NUD_PERMANENT, no: drop},
		step{label: "entry", code: octet, k: family}, // learned entries of bridges come and go
		step{code: equal, k: unix.AF_BRIDGE, yes: drop, no: pass},
		step{label: "setting", code: octet, k: at(length, 4)}, // a link that is new has all
		step{code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, k: oneSetting, yes: drop, no: pass},
		step{label: "link", code: octet, k: family},
		step{code: equal, k: unix.AF_BRIDGE, yes: drop},
		step{code: word, k: change},
		step{code: equal, k: all, yes: drop}, // it is new
		step{code: equal, k: 0, yes: set},
		step{code: octet, k: at(flags, 4)},
		step{code: bits, k: unix.IFF_UP, yes: drop},
		step{code: octet, k: at(change, 4)},
		step{code: bits, k: unix.IFF_UP, yes: pass, no: drop},
		step{label: drop, code: unix.BPF_RET | unix.BPF_K},
		step{label: pass, code: unix.BPF_RET | unix.BPF_K, k: all},
	)
	return assemble(program)
}

// assemble turns labels, which are ahead of their jumps, into distances.
func assemble(program []step) []unix.SockFilter {
	places := map[string]int{}
	for i, s := range program {
		if s.label != "" {
			places[s.label] = i
		}
	}
	out := make([]unix.SockFilter, len(program))
	for i, s := range program {
		to := func(label string) uint8 {
			if label == "" {
				return 0
			}
			return uint8(places[label] - i - 1)
		}
		out[i] = unix.SockFilter{Code: s.code, K: s.k, Jt: to(s.yes), Jf: to(s.no)}
	}
	return out
}
