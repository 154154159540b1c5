// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/ipam"
)

// readRange parses "10.1.0.0/16", "10.1.0.5/16" (the same) or "10.1.0.5-10.1.0.9/16".
func readRange(field string, r rangeConf) (want, error) {
	w := want{field: field}
	start, rest, both := strings.Cut(r.Range, "-")
	if !both {
		rest = start
	}
	p, err := netip.ParsePrefix(strings.TrimSpace(rest))
	if err != nil || p.Addr().Is4In6() {
		return w, ipam.Invalid(`for example "10.1.0.0/16" or "10.1.0.5-10.1.0.9/16"`, "%s.range %q is no range",
			field, r.Range)
	}
	w.network = p.Masked()
	s := usable(w.network)
	if both {
		if s.from, err = addr(field+".range", start); err != nil {
			return w, err
		}
		s.to = p.Addr()
		if !w.network.Contains(s.from) || s.to.Less(s.from) {
			return w, ipam.Invalid("begin with the lower address, both of one subnet",
				"%s.range %q: %s is not between the beginning of %s and %s", field, r.Range, s.from, w.network, s.to)
		}
	}
	for _, end := range []struct {
		key, value string
		into       *netip.Addr
	}{{"range_start", r.Start, &s.from}, {"range_end", r.End, &s.to}} {
		if end.value == "" {
			continue
		}
		a, err := addr(field+"."+end.key, end.value)
		if err != nil {
			return w, err
		}
		if !w.network.Contains(a) {
			return w, ipam.Invalid("leave it out, or use an address of the range", "%s.%s %s is not in range %s", field, end.key,
				a, w.network)
		}
		*end.into = a
	}
	if s.to.Less(s.from) {
		return w, ipam.Invalid("exchange them", "%s.range_end %s is before range_start %s", field, s.to, s.from)
	}
	w.spans = []span{s}
	w.spans = keep(w.spans, usable(w.network))
	for i, x := range r.Exclude {
		out, err := readExclude(x)
		if err != nil {
			return w, ipam.Invalid("a prefix or an address, for example 10.1.0.0/28",
				"%s.exclude[%d] %q is neither a prefix nor an address", field, i, x)
		}
		w.spans = without(w.spans, whole(out))
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

// usable returns the addresses of a network that a host can have: without the first and the last, as in whereabouts for
// both families, unless there are no others.
func usable(p netip.Prefix) span {
	s := whole(p)
	if p.Addr().BitLen()-p.Bits() < 2 {
		return s
	}
	return span{s.from.Next(), s.to.Prev()}
}

// keep returns the spans clipped to one.
func keep(spans []span, in span) []span {
	var out []span
	for _, s := range spans {
		if s.from.Less(in.from) {
			s.from = in.from
		}
		if in.to.Less(s.to) {
			s.to = in.to
		}
		if !s.to.Less(s.from) {
			out = append(out, s)
		}
	}
	return out
}
