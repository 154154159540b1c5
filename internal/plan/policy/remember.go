// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// Memory is a set of a tap's table that remembers what has begun.
type Memory struct {
	state.Set
	// Out: the guest has begun it.
	Out bool
}

// Memories are all of a tap's table.
func Memories() []Memory {
	var out []Memory
	for _, s := range tapSets() {
		if s.Learns > 0 && !strings.HasPrefix(s.Name, "parts") {
			out = append(out, Memory{s, strings.HasSuffix(s.Name, egress.suffix())})
		}
	}
	return out
}

// Flow is what an element says has begun; false for one that is not understood.
func (m Memory) Flow(e state.Element) (Flow, bool) {
	var f Flow
	to := map[int]int{3: 2, 5: 3}[len(e.Key)] // without ports, and with them
	if to == 0 {
		return f, false
	}
	var err [4]error
	f.Src, err[0] = netip.ParseAddr(e.Key[1])
	f.Dst, err[1] = netip.ParseAddr(e.Key[to])
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if len(e.Key) == 5 && e.Key[0] == nftProto(p) {
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
