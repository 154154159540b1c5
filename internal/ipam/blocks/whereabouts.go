// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
)

// dropForeign has the reservation of an attachment forgotten that another program made: one that no record tells of. It
// is done behind the answer.
func (e *Engine) dropForeign(ask ipam.Ask) {
	if len(ask.Held) > 0 {
		return
	}
	s, err := e.chooser.settings(ipam.Ask{Conf: ask.Conf})
	if err != nil {
		return
	}
	e.mem.mu.Lock()
	defer e.mem.mu.Unlock()
	for _, w := range s.wants {
		p := e.mem.pool(w.pool)
		p.dropped = append(p.dropped, ask.Key())
		e.kick.Notify()
	}
}

// Range is a range of addresses that a configuration has added to its pool.
type Range struct {
	Pool string
	CIDR netip.Prefix
	// NetworkName is whereabouts' network_name.
	NetworkName string
	// Addresses are how many of it are for use.
	Addresses int
}

// Ranges are those that a configuration of either name adds to pools. With an error come those that were read before
// it.
func Ranges(conf json.RawMessage, readFile func(string) ([]byte, error)) ([]Range, error) {
	s, err := (&chooser{cfg: &Config{ReadFile: readFile}}).settings(ipam.Ask{Conf: conf})
	var out []Range
	for _, w := range s.wants {
		if w.grow {
			out = append(out, Range{Pool: w.pool, CIDR: w.network, NetworkName: w.alias, Addresses: count(w.spans)})
		}
	}
	return out, err
}

// RangeOf is the range of a whole network that whereabouts allocates from, as a configuration without further options
// would have it.
func RangeOf(network netip.Prefix, networkName string) Range {
	name := poolName(inner{Type: TypeWhereabouts, NetworkName: networkName}, want{})
	return Range{Pool: name, CIDR: network, NetworkName: networkName, Addresses: count([]span{usable(network)})}
}
