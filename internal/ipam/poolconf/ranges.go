// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
)

// readRange parses "10.1.0.0/16", "10.1.0.5/16" (the same) or "10.1.0.5-10.1.0.9/16".
func readRange(field string, r rangeConf) (Want, error) {
	w := Want{Field: field}
	start, rest, both := strings.Cut(r.Range, "-")
	if !both {
		rest = start
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(rest))
	if err != nil || p.Addr().Is4In6() {
		return w, ipam.Invalid(`for example "10.1.0.0/16" or "10.1.0.5-10.1.0.9/16"`, "%s.range %q is no range",
			field, r.Range)
	}
	w.Network = p.Masked()
	s := addrspan.Usable(w.Network)
	if both {
		if s.From, err = addr(field+".range", start); err != nil {
			return w, err
		}
		s.To = p.Addr()
		if !w.Network.Contains(s.From) || s.To.Less(s.From) {
			return w, ipam.Invalid("begin with the lower address, both of one subnet",
				"%s.range %q: %s is not between the beginning of %s and %s", field, r.Range, s.From, w.Network, s.To)
		}
	}
	for _, end := range []struct {
		key, value string
		into       *netip.Addr
	}{{"range_start", r.Start, &s.From}, {"range_end", r.End, &s.To}} {
		if end.value == "" {
			continue
		}
		a, err := addr(field+"."+end.key, end.value)
		if err != nil {
			return w, err
		}
		if !w.Network.Contains(a) {
			return w, ipam.Invalid("leave it out, or use an address of the range", "%s.%s %s is not in range %s", field, end.key,
				a, w.Network)
		}
		*end.into = a
	}
	if s.To.Less(s.From) {
		return w, ipam.Invalid("exchange them", "%s.range_end %s is before range_start %s", field, s.To, s.From)
	}
	w.Spans = []addrspan.Span{s}
	w.Spans = addrspan.Clip(w.Spans, addrspan.Usable(w.Network))
	for i, x := range r.Exclude {
		out, err := readExclude(x)
		if err != nil {
			return w, ipam.Invalid("a prefix or an address, for example 10.1.0.0/28",
				"%s.exclude[%d] %q is neither a prefix nor an address", field, i, x)
		}
		w.Spans = addrspan.Without(w.Spans, addrspan.Whole(out))
	}
	return w, nil
}

func readExclude(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(strings.TrimSpace(s)); err == nil {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(s))
	return p.Masked(), err
}
