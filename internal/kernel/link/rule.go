// SPDX-License-Identifier: Apache-2.0

package link

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/netlink"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/state"
)

// FoundRule is a rule as the kernel has it.
type FoundRule struct {
	state.Rule
	// Protocol is the rule's origin.
	Protocol uint8
}

// The attributes of a rule (linux/fib_rules.h); x/sys does not name them.
const (
	fraDst      = 1
	fraSrc      = 2
	fraIifname  = 3
	fraPriority = 6
	fraFwmark   = 10
	fraTable    = 15
	fraFwmask   = 16
	fraOifname  = 17
	fraProtocol = 21
	toTable     = 1 // FR_ACT_TO_TBL
)

// AddRule requests a rule.
func AddRule(r state.Rule) *rtnl.Message {
	return ruleMessage(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, "add", r).Forgiving(unix.EEXIST)
}

// DelRule requests the deletion of a rule.
func DelRule(r state.Rule) *rtnl.Message {
	return ruleMessage(unix.RTM_DELRULE, 0, "delete", r).Forgiving(unix.ENOENT, unix.EAFNOSUPPORT)
}

func ruleMessage(kind, flags uint16, verb string, r state.Rule) *rtnl.Message {
	h := make([]byte, unix.SizeofRtMsg)
	h[0] = unix.AF_INET
	if r.IPv6 || r.From.IsValid() && r.From.Addr().Is6() || r.To.IsValid() && r.To.Addr().Is6() {
		h[0] = unix.AF_INET6
	}
	h[4], h[7] = uint8(min(r.Table, unix.RT_TABLE_COMPAT)), toTable
	m := rtnl.New(kind, flags, verb, r, h)
	if r.From.IsValid() && r.From.Bits() > 0 {
		h[2] = uint8(r.From.Bits())
		m.Attr(fraSrc, r.From.Masked().Addr().AsSlice())
	}
	if r.To.IsValid() && r.To.Bits() > 0 {
		h[1] = uint8(r.To.Bits())
		m.Attr(fraDst, r.To.Masked().Addr().AsSlice())
	}
	m.Patch(h)
	if r.IIf != "" {
		m.String(fraIifname, r.IIf)
	}
	if r.OIf != "" {
		m.String(fraOifname, r.OIf)
	}
	if r.Mark != 0 {
		m.Uint32(fraFwmark, r.Mark)
		m.Uint32(fraFwmask, mask(r))
	}
	m.Uint32(fraPriority, r.Priority)
	m.Uint32(fraTable, r.Table)
	if !r.Foreign {
		m.Uint8(fraProtocol, Protocol)
	}
	return m
}

func mask(r state.Rule) uint32 {
	if r.Mask == 0 {
		return 0xffffffff
	}
	return r.Mask
}

// NormalRule sets the fields that a plan may leave unset to their defaults.
func NormalRule(r state.Rule) state.Rule {
	r.IPv6 = r.IPv6 || r.From.IsValid() && r.From.Addr().Is6() || r.To.IsValid() && r.To.Addr().Is6()
	if r.From.IsValid() {
		r.From = r.From.Masked()
		if r.From.Bits() == 0 {
			r.From = netip.Prefix{}
		}
	}
	if r.To.IsValid() {
		r.To = r.To.Masked()
		if r.To.Bits() == 0 {
			r.To = netip.Prefix{}
		}
	}
	if r.Mark != 0 {
		r.Mask = mask(r)
	}
	r.Shared, r.Foreign = false, false
	return r
}

// ListRules requests the rules of one family.
func ListRules(fam uint8) *rtnl.Message {
	h := make([]byte, unix.SizeofRtMsg)
	h[0] = fam
	return rtnl.New(unix.RTM_GETRULE, 0, "read", rtnl.Name("rules"), h).Forgiving(unix.EAFNOSUPPORT, unix.EOPNOTSUPP)
}

// DecodeRule decodes RTM_NEWRULE; it ignores rules that do not look up a table.
func DecodeRule(body []byte) (FoundRule, bool) {
	if len(body) < unix.SizeofRtMsg || body[7] != toTable {
		return FoundRule{}, false
	}
	var f FoundRule
	f.IPv6 = body[0] == unix.AF_INET6
	to, from := int(body[1]), int(body[2])
	f.Table = uint32(body[4])
	for kind, data := range netlink.Attrs(body[unix.SizeofRtMsg:]) {
		switch kind {
		case fraSrc:
			a, _ := netip.AddrFromSlice(data)
			f.From = netip.PrefixFrom(a, from)
		case fraDst:
			a, _ := netip.AddrFromSlice(data)
			f.To = netip.PrefixFrom(a, to)
		case fraIifname:
			f.IIf = text(data)
		case fraOifname:
			f.OIf = text(data)
		case fraPriority:
			f.Priority = number(data)
		case fraTable:
			f.Table = number(data)
		case fraFwmark:
			f.Mark = number(data)
		case fraFwmask:
			f.Mask = number(data)
		case fraProtocol:
			f.Protocol = data[0]
		}
	}
	if f.Mark == 0 {
		f.Mask = 0
	}
	return f, true
}
