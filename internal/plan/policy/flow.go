// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"net/netip"
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
