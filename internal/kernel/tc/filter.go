// SPDX-License-Identifier: Apache-2.0

package tc

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// priority is the priority of weft's filter among those of a link.
const priority = 0x7766

// The numbers of linux/pkt_cls.h, linux/tc_act/tc_mirred.h.
const (
	u32Sel       = 5
	u32Act       = 7
	u32SelLen    = 16 + 16 // struct tc_u32_sel with one key
	actKind      = 1
	actOptions   = 2
	mirredParms  = 2
	mirredLen    = 28 // struct tc_mirred
	stolen       = 4  // TC_ACT_STOLEN
	redirectSend = 1  // TCA_EGRESS_REDIR
)

// about encodes a filter's priority and protocol (all).
func about() uint32 { return priority<<16 | uint32(bits.ReverseBytes16(unix.ETH_P_ALL)) }

// newFilter redirects every arriving packet to another link. It is a u32 filter, because small kernels lack the simpler
// matchall.
func newFilter(q state.Qdisc, index, redirect int) *rtnl.Message {
	m := rtnl.New(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add filter of", q,
		header(index, 0, ingressHandle, about()))
	m.String(unix.TCA_KIND, "u32")
	m.Nest(unix.TCA_OPTIONS, func() {
		sel := make([]byte, u32SelLen) // one key with mask 0, which matches everything
		sel[0], sel[2] = 1, 1          // TC_U32_TERMINAL, one key
		m.Attr(u32Sel, sel)
		mirred(m, redirect)
	})
	return m
}

// mirred adds the action that redirects to another link.
func mirred(m *rtnl.Message, to int) {
	m.Nest(u32Act, func() {
		m.Nest(1, func() {
			m.String(actKind, "mirred")
			m.Nest(actOptions, func() {
				p := make([]byte, mirredLen)
				binary.NativeEndian.PutUint32(p[8:], stolen)
				binary.NativeEndian.PutUint32(p[20:], redirectSend)
				binary.NativeEndian.PutUint32(p[24:], uint32(to))
				m.Attr(mirredParms, p)
			})
		})
	})
}

// deleteFilter requests the deletion of all filters with our priority.
func deleteFilter(q state.Qdisc, index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_DELTFILTER, 0, "delete filter of", q, header(index, 0, ingressHandle, about()))
	return m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV)
}

// ListFilters requests the filters of a link's arriving packets.
func ListFilters(index int) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETTFILTER, 0, "read", rtnl.Name("filters of arriving packets"),
		header(index, 0, ingressHandle, 0))
	return m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV, unix.EOPNOTSUPP)
}

// Directions of packets at a link with a qdisc clsact.
const (
	Arriving = 0xfffffff2 // TC_H_CLSACT, TC_H_MIN_INGRESS; also of a qdisc ingress
	Leaving  = 0xfffffff3 // TC_H_CLSACT, TC_H_MIN_EGRESS
)

// ListDirection requests the filters of a link's packets in one direction.
func ListDirection(index int, direction uint32) *rtnl.Message {
	m := rtnl.New(unix.RTM_GETTFILTER, 0, "read", rtnl.Name("filters of packets"), header(index, 0, direction, 0))
	return m.Forgiving(unix.ENOENT, unix.EINVAL, unix.ENODEV, unix.EOPNOTSUPP)
}

// ForeignKind returns the kind of another program's filter (bpf, flower, u32), "" of weft's own.
func ForeignKind(body []byte) string {
	if len(body) < headerLen || binary.NativeEndian.Uint32(body[16:])>>16 == priority {
		return ""
	}
	return netlink.String(netlink.Find(body[headerLen:], unix.TCA_KIND))
}

// FoundFilter is a filter as the kernel has it.
type FoundFilter struct {
	// Ours means that it has weft's priority.
	Ours bool
	// To is the index of the link that it redirects to, 0 if it does not redirect.
	To int
}

// DecodeFilter decodes RTM_NEWTFILTER; it ignores the parts of a filter.
func DecodeFilter(body []byte) (FoundFilter, bool) {
	if len(body) < headerLen {
		return FoundFilter{}, false
	}
	f := FoundFilter{Ours: binary.NativeEndian.Uint32(body[16:])>>16 == priority}
	whole := false
	for kind, data := range netlink.Attrs(body[headerLen:]) {
		if kind != unix.TCA_OPTIONS {
			continue
		}
		for kind, data := range netlink.Attrs(data) {
			// The kernel lists our filter's hash table first, which does nothing.
			whole = whole || !f.Ours || kind == u32Act
			if kind == u32Act {
				f.To = redirectOf(data)
			}
		}
	}
	return f, whole
}

// redirectOf returns the target of the last redirecting action.
func redirectOf(actions []byte) int {
	to := 0
	for _, action := range netlink.Attrs(actions) {
		for kind, options := range netlink.Attrs(action) {
			if kind != actOptions {
				continue
			}
			for kind, p := range netlink.Attrs(options) {
				if kind == mirredParms && len(p) >= mirredLen && binary.NativeEndian.Uint32(p[20:]) == redirectSend {
					to = int(binary.NativeEndian.Uint32(p[24:]))
				}
			}
		}
	}
	return to
}
