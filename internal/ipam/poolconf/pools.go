// SPDX-License-Identifier: Apache-2.0

package poolconf

import (
	"encoding/json"
	"net/netip"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/addrspan"
	"github.com/weft-net/weft/internal/model"
)

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
	s, err := NewReader(readFile).Settings(ipam.Request{Conf: conf})
	var out []Range
	for _, w := range s.Wants {
		if w.Grow {
			out = append(out, Range{Pool: w.Pool, CIDR: w.Network, NetworkName: w.Alias, Addresses: addrspan.Count(w.Spans)})
		}
	}
	return out, err
}

// RangeOf returns the range of a configuration of whereabouts that has only the network.
func RangeOf(network netip.Prefix, networkName string) Range {
	name := poolName(inner{Type: TypeWhereabouts, NetworkName: networkName}, Want{})
	addresses := addrspan.Count([]addrspan.Span{addrspan.Usable(network)})
	return Range{Pool: name, CIDR: network, NetworkName: networkName, Addresses: addresses}
}

// TypeOf returns the IPAM type of a configuration; empty: it has none.
func TypeOf(conf json.RawMessage) string {
	var c struct{ IPAM struct{ Type string } }
	_ = json.Unmarshal(conf, &c) // invalid JSON has no type
	return c.IPAM.Type
}

// Plugins returns the plugin objects of networks whose addresses come from pools.
func Plugins(networks []model.NetworkAttachment) []json.RawMessage {
	var out []json.RawMessage
	for _, n := range networks {
		var list struct {
			Plugins []json.RawMessage `json:"plugins"`
		}
		if json.Unmarshal([]byte(n.Config), &list) != nil {
			continue // an ADD reports the error
		}
		if len(list.Plugins) == 0 {
			list.Plugins = []json.RawMessage{json.RawMessage(n.Config)}
		}
		for _, p := range list.Plugins {
			switch TypeOf(p) {
			case TypeWeft, TypeWhereabouts, TypeCalico:
				out = append(out, p)
			}
		}
	}
	return out
}

// ClaimReference returns the name of the IPAMClaim in a configuration; empty: it has none.
func ClaimReference(conf json.RawMessage) string {
	var o outer
	if json.Unmarshal(conf, &o) != nil {
		return ""
	}
	return o.Args.CNI.Claim
}
