// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// timeLayout is the time of a flow in text, in local time.
const timeLayout = "15:04:05.000"

// String returns the identity's name, as it is written in a filter: "outside" and "hidden" have none.
func (i Identity) String() string {
	switch {
	case i.Kind == OutsideEnd || i.Kind == "":
		return "outside"
	case i.Kind == HiddenEnd:
		return "hidden"
	case i.Kind == PodEnd:
		return i.Name
	case i.Kind == OtherEnd:
		return string(i.Kind)
	}
	return string(i.Kind) + " " + i.Name
}

// Text returns the end as text; numeric leaves out its name.
func (e Endpoint) Text(numeric bool) string {
	if e.Kind == OtherEnd {
		return e.Identity.String()
	}
	at := e.Addr.String()
	if e.Port != 0 {
		at = netip.AddrPortFrom(e.Addr, e.Port).String()
	}
	if numeric {
		return at
	}
	text := e.Identity.String() + " " + at
	if e.Network != "" {
		text += " (" + e.Network + ")"
	}
	return text
}

// Why returns what decided, in a few words.
func (r Record) Why() string {
	var parts []string
	for _, d := range r.Decisions {
		if d.Allowed && r.Verdict == DeniedVerdict {
			continue // the other side denied it
		}
		side := d.Direction
		if d.HostEndpoint != "" {
			side += " of host endpoint " + d.HostEndpoint
		}
		part := side + " no policy"
		if len(d.Policies) > 0 {
			names := make([]string, 0, len(d.Policies))
			for _, p := range d.Policies {
				names = append(names, p.String())
			}
			part = side + " " + strings.Join(names, ", ")
		}
		if d.Rule >= 0 {
			part += " rule " + strconv.Itoa(d.Rule)
		}
		parts = append(parts, part)
	}
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	return strings.Join(parts, "; ")
}

// Clock returns the time of day, in local time.
func (r Record) Clock() string { return r.Time.Local().Format(timeLayout) }

// Compact returns the flow in one line.
func (r Record) Compact(numeric bool) string {
	words := []string{r.Clock(), r.Node, r.From.Text(numeric), ">", r.To.Text(numeric)}
	if r.Via != nil {
		words = append(words, "via", r.Via.Text(numeric))
	}
	if r.Masquerade != nil {
		words = append(words, "as", r.Masquerade.String())
	}
	if r.Protocol != "" {
		words = append(words, r.Protocol)
	}
	words = append(words, string(r.Kind))
	if r.State != "" && (r.Kind == Tracked || r.Kind == Update) {
		words = append(words, r.State)
	}
	if verdict := string(r.Verdict); !slices.Contains(words, verdict) {
		words = append(words, verdict)
	}
	line := strings.Join(words, " ")
	if why := r.Why(); why != "" {
		line += ": " + why
	}
	if r.Forth != nil && r.Back != nil {
		line += " (" + r.Traffic() + ")"
	}
	if r.Count > 0 {
		line += ", " + strconv.FormatUint(r.Count, 10) + " in " + r.Until.Sub(r.Time).String()
	}
	return line
}

// Rules returns the rules of nftables that decided, one a line.
func (r Record) Rules() (out []string) {
	for _, d := range r.Decisions {
		if d.Text == "" {
			continue
		}
		line := d.Direction + " chain " + d.Chain + ": " + d.Text
		if d.Set != "" {
			line += " (element " + d.Element + " of set " + d.Set + ")"
		}
		out = append(out, line)
	}
	return out
}

// Traffic returns the bytes from the source and back; "-" if the kernel does not count.
func (r Record) Traffic() string {
	if r.Forth == nil || r.Back == nil {
		return "-"
	}
	count := func(c Counters) string {
		return strconv.FormatUint(c.Packets, 10) + "/" + strconv.FormatUint(c.Bytes, 10)
	}
	return "packets/bytes " + count(*r.Forth) + ", back " + count(*r.Back)
}

// Text returns what is missing, in one line.
func (l Lost) Text() string {
	var parts []string
	for _, p := range []struct {
		n    uint64
		what string
	}{
		{l.New, "new connections that the kernel could not report"},
		{l.Update, "states of connections that the kernel could not report"},
		{l.End, "ends of connections that the kernel could not report"},
		{l.Drops, "dropped packets that were too many to report"},
		{l.Queue, "flows that were not read in time"},
	} {
		if p.n > 0 {
			parts = append(parts, strconv.FormatUint(p.n, 10)+" "+p.what)
		}
	}
	return l.Time.Local().Format(timeLayout) + " " + l.Node + " lost: " + strings.Join(parts, ", ")
}
