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

// Flow is a connection's addresses, protocol and ports, as in its first packet.
type Flow struct {
	Src netip.Addr `json:"src"`
	Dst netip.Addr `json:"dst"`
	// Protocol is empty unless it is TCP, UDP or SCTP.
	Protocol model.Protocol `json:"protocol,omitempty"`
	// Number is the number of another protocol; 0: ICMP, or ICMPv6.
	Number  uint8  `json:"number,omitempty"`
	SrcPort uint16 `json:"srcPort,omitempty"`
	DstPort uint16 `json:"dstPort,omitempty"`
}

func (f Flow) compare(o Flow) int {
	return cmp.Or(f.Src.Compare(o.Src), f.Dst.Compare(o.Dst), strings.Compare(string(f.Protocol), string(o.Protocol)),
		cmp.Compare(f.Number, o.Number),
		cmp.Compare(f.SrcPort, o.SrcPort), cmp.Compare(f.DstPort, o.DstPort))
}

func (f Flow) reply() Flow { return Flow{f.Dst, f.Src, f.Protocol, f.Number, f.DstPort, f.SrcPort} }

// element returns the flow as an element of an nft set.
func (f Flow) element() state.Element {
	return state.Element{Key: []string{
		f.Src.String(), f.Dst.String(), nftProtocol(f.Protocol), strconv.Itoa(int(f.SrcPort)), strconv.Itoa(int(f.DstPort)),
	}}
}
