// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Flow is a connection, as its first packet says it.
type Flow struct {
	Src netip.Addr `json:"src"`
	Dst netip.Addr `json:"dst"`
	// Protocol is empty for what is neither TCP, UDP nor SCTP.
	Protocol model.Protocol `json:"protocol,omitempty"`
	SrcPort  uint16         `json:"srcPort,omitempty"`
	DstPort  uint16         `json:"dstPort,omitempty"`
}

func (f Flow) compare(o Flow) int {
	return cmp.Or(f.Src.Compare(o.Src), f.Dst.Compare(o.Dst), strings.Compare(string(f.Protocol), string(o.Protocol)),
		cmp.Compare(f.SrcPort, o.SrcPort), cmp.Compare(f.DstPort, o.DstPort))
}

func (f Flow) reply() Flow { return Flow{f.Dst, f.Src, f.Protocol, f.DstPort, f.SrcPort} }

// words is the flow as an element of a set.
func (f Flow) words() state.Element {
	return state.Element{Key: []string{
		f.Src.String(), f.Dst.String(), nftProto(f.Protocol), strconv.Itoa(int(f.SrcPort)), strconv.Itoa(int(f.DstPort)),
	}}
}

// Cut has the replies of a connection that policy has ended be dropped, until Uncut. Without that the next packet of the side
// that was connected to would look to the kernel like the first one of a connection the other way, which may well be
// allowed, and the old connection would live on in it. On the node it is cut at both of its places.
func (x *Index) Cut(p Place, f Flow) {
	if f.Protocol != "" {
		x.cutting(p, f, true)
	}
}

// Uncut forgets a cut.
func (x *Index) Uncut(p Place, f Flow) { x.cutting(p, f, false) }

func (x *Index) cutting(p Place, f Flow, is bool) {
	all := []Place{p}
	if p.OnNode() {
		all = []Place{{}, {Ports: true}}
	}
	for _, p := range all {
		if is || x.tables[p] != nil {
			x.table(p).cutting(f.reply(), is)
		}
	}
}

func (t *table) cutting(r Flow, is bool) {
	if t.cuts[r] == is {
		return
	}
	if _, done := t.wasCuts[r]; !done {
		t.wasCuts[r] = !is
	}
	if delete(t.cuts, r); is {
		t.cuts[r] = true
	}
}

func (t *table) hasCuts(six bool) bool {
	for f := range t.cuts {
		if f.Src.Is6() == six {
			return true
		}
	}
	return false
}

func cutHead(six bool) state.Set {
	addr := "ipv" + family(six) + "_addr"
	return state.Set{Name: "cut" + family(six), Key: addr + " . " + addr + " . inet_proto . inet_service . inet_service"}
}

// cutSets are the sets of what is cut, none of a family in which nothing is.
func (t *table) cutSets() []state.Set {
	var out []state.Set
	for _, six := range []bool{false, true} {
		s := cutHead(six)
		for _, f := range slices.SortedFunc(maps.Keys(t.cuts), Flow.compare) {
			if f.Src.Is6() == six {
				s.Elements = append(s.Elements, f.words())
			}
		}
		if len(s.Elements) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (t *table) changeCuts(c *state.TableChange) {
	for _, six := range []bool{false, true} {
		count := 0
		for f := range t.cuts {
			if f.Src.Is6() == six {
				count++
			}
		}
		before := count
		var gone, came []state.Element
		for _, f := range slices.SortedFunc(maps.Keys(t.wasCuts), Flow.compare) {
			switch was, is := t.wasCuts[f], t.cuts[f]; {
			case f.Src.Is6() != six || was == is:
			case was:
				gone = append(gone, f.words())
				before++
			default:
				came = append(came, f.words())
				before--
			}
		}
		head := cutHead(six)
		switch {
		case before == 0 && count > 0:
			head.Elements = came
			c.MakeSets = append(c.MakeSets, head)
		case before > 0 && count == 0:
			c.DropSets = append(c.DropSets, head.Name)
		default:
			elements(c, head, gone, came)
		}
	}
}
