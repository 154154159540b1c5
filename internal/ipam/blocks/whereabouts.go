// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
)

// dropForeign schedules the removal of a reservation that another program made for an attachment without a record. The
// reconciler does it after the DEL has returned.
func (e *Engine) dropForeign(req ipam.Request) {
	if len(req.Held) > 0 {
		return
	}
	s, err := e.poolSelector.settings(ipam.Request{Conf: req.Conf})
	if err != nil {
		return
	}
	e.state.mu.Lock()
	defer e.state.mu.Unlock()
	for _, w := range s.wants {
		p := e.state.poolLocked(w.pool)
		p.deleted = append(p.deleted, req.Key())
		e.kick.Notify()
	}
}

// Range is a range of addresses that a configuration adds to its pool.
type Range struct {
	Pool string
	CIDR netip.Prefix
	// NetworkName is whereabouts' network_name.
	NetworkName string
	// Addresses is how many of it are allocatable.
	Addresses int
}

// Ranges returns the ranges that a configuration of either type adds to pools. With an error come those that were read
// before it.
func Ranges(conf json.RawMessage, readFile func(string) ([]byte, error)) ([]Range, error) {
	s, err := (&poolSelector{cfg: &Config{ReadFile: readFile}}).settings(ipam.Request{Conf: conf})
	var out []Range
	for _, w := range s.wants {
		if w.grow {
			out = append(out, Range{Pool: w.pool, CIDR: w.network, NetworkName: w.alias, Addresses: addrspan.Count(w.spans)})
		}
	}
	return out, err
}

// RangeOf returns the range of a configuration of whereabouts that has only the network.
func RangeOf(network netip.Prefix, networkName string) Range {
	name := poolName(inner{Type: TypeWhereabouts, NetworkName: networkName}, want{})
	return Range{Pool: name, CIDR: network, NetworkName: networkName, Addresses: addrspan.Count([]addrspan.Span{addrspan.Usable(network)})}
}
