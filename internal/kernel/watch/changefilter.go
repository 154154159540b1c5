// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Verdicts of the filter, used as labels.
const drop, pass = "drop", "pass"

// step is one instruction; yes and no are the labels of jump targets, the empty label is the next instruction.
type step struct {
	label   string
	code    uint16
	k       uint32
	yes, no string
}

// filter is the part of Scope that the kernel evaluates: it passes every deletion, and of additions and changes only
// those that replace something: routes, permanent neighbors, links that went down. In the watched namespace it also
// passes changed links, single settings, queueing disciplines, which are changed by the same message as they are added,
// and messages of bridges about their ports. It drops the many messages about a link that is being made.
func (s Scope) filter() []unix.SockFilter {
	const (
		word, octet = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		equal, bits = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	)
	const length, port, kind, family, flags, change, all = 0, 12, 4, 16, 24, 28, 0xffffffff
	const oneSetting = unix.NLMSG_HDRLEN + 4 + 8 + 8 // struct netconfmsg, the link's index, the setting
	program := []step{
		{code: octet, k: lowByte(kind, 2)},
		{code: equal, k: unix.RTM_DELLINK, yes: pass},
		{code: equal, k: unix.RTM_NEWLINK, yes: "link"},
		{code: equal, k: unix.RTM_DELNEIGH, yes: "entry"},
		{code: equal, k: unix.RTM_NEWROUTE, yes: "route"},
	}
	if s.Port != 0 {
		own := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, s.Port)) // loads use network byte order
		program = append([]step{{code: word, k: port}, {code: equal, k: own, yes: drop}}, program...)
	}
	gone := []uint32{
		unix.RTM_DELADDR, unix.RTM_DELROUTE, unix.RTM_DELRULE, unix.RTM_DELQDISC, unix.RTM_DELTFILTER, unix.RTM_DELNSID,
	}
	set := drop // a link that changed without going up or down, or a port
	if !s.Others {
		set = pass
		program = append(program,
			step{code: equal, k: unix.RTM_NEWNEIGH, yes: "permanent"},
			step{code: equal, k: unix.RTM_NEWNETCONF, yes: "setting"},
			step{code: equal, k: unix.RTM_NEWQDISC, yes: pass})
	}
	for _, typ := range gone {
		program = append(program, step{code: equal, k: typ, yes: pass})
	}
	program = append(program,
		step{code: unix.BPF_RET | unix.BPF_K},
		step{label: "route", code: octet, k: lowByte(6, 2) ^ 1}, // NLM_F_REPLACE is bit 8 of the flags
		step{code: bits, k: unix.NLM_F_REPLACE >> 8, yes: pass, no: drop},
		step{label: "permanent", code: octet, k: lowByte(24, 2)}, // struct ndmsg
		step{code: bits, k: unix.NUD_PERMANENT, no: drop},
		step{label: "entry", code: octet, k: family}, // learned entries of bridges change frequently
		step{code: equal, k: unix.AF_BRIDGE, yes: drop, no: pass},
		step{label: "setting", code: octet, k: lowByte(length, 4)}, // a new link reports all settings at once
		step{code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, k: oneSetting, yes: drop, no: pass},
		step{label: "link", code: octet, k: family},
		step{code: equal, k: unix.AF_BRIDGE, yes: set},
		step{code: word, k: change},
		step{code: equal, k: all, yes: drop}, // a new link
		step{code: equal, k: 0, yes: set},
		step{code: octet, k: lowByte(flags, 4)},
		step{code: bits, k: unix.IFF_UP, yes: drop},
		step{code: octet, k: lowByte(change, 4)},
		step{code: bits, k: unix.IFF_UP, yes: pass, no: drop},
		step{label: drop, code: unix.BPF_RET | unix.BPF_K},
		step{label: pass, code: unix.BPF_RET | unix.BPF_K, k: all},
	)
	return assemble(program)
}

// assemble replaces labels, which must follow their jumps, by distances.
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
