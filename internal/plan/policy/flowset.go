// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// FlowSet is a set of a tap's table that tracks flows.
type FlowSet struct {
	state.Set
	// Out: the guest sent the first packet.
	Out bool
}

// FlowSets returns all flow sets of a tap's table.
func FlowSets() []FlowSet {
	var out []FlowSet
	for _, s := range tapSets() {
		if s.DynamicSize > 0 && !strings.HasPrefix(s.Name, "parts") {
			out = append(out, FlowSet{s, strings.HasSuffix(s.Name, egress.suffix())})
		}
	}
	return out
}

// Flow returns the flow of an element; false if it is invalid.
func (m FlowSet) Flow(e state.Element) (Flow, bool) {
	var f Flow
	to := map[int]int{3: 2, 5: 3}[len(e.Key)] // without ports, and with them
	if to == 0 {
		return f, false
	}
	var err [4]error
	f.Src, err[0] = netip.ParseAddr(e.Key[1])
	f.Dst, err[1] = netip.ParseAddr(e.Key[to])
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if len(e.Key) == 5 && e.Key[0] == nftProtocol(p) {
			f.Protocol = p
			f.SrcPort, err[2] = portIn(e.Key[2])
			f.DstPort, err[3] = portIn(e.Key[4])
		}
	}
	return f, err == [4]error{}
}

func portIn(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}
