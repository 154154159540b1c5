// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"slices"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/model"
)

// RecordVersion is the format of the lease files that this program writes. One of another format is ignored.
const RecordVersion = 1

// record is what is kept of one attachment.
type record struct {
	Version     int    `json:"version"`
	Boot        string `json:"boot,omitempty"`
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	Netns       string `json:"netns"`
	NetnsID     uint64 `json:"netnsID,omitempty"`
	// LinkMTU is the interface's, in bytes, when the lease was got.
	LinkMTU  int           `json:"linkMTU,omitempty"`
	Settings dhcp.Settings `json:"settings"`
	// Broadcast is how the leases were asked for.
	Broadcast bool             `json:"broadcast,omitempty"`
	Grants    []exchange.Grant `json:"grants,omitempty"`
	// Lost says why leases were lost.
	Lost string `json:"lost,omitempty"`
}

func newRecord(req ipam.Request, set dhcp.Settings, cfg Config) record {
	return record{
		Version: RecordVersion, Boot: cfg.Boot, Network: req.Network, ContainerID: req.ContainerID, IfName: req.IfName,
		Netns: req.Netns, Settings: set, Broadcast: cfg.Broadcast,
	}
}

func (r record) key() model.AttachmentKey {
	return model.AttachmentKey{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

func (r record) clone() record {
	r.Grants = slices.Clone(r.Grants)
	return r
}

// identity identifies the attachment to a server: the reference daemon's words, so that either can continue a lease.
func (r record) identity() exchange.Identity {
	id := exchange.Identity{
		ID: r.ContainerID + "/" + r.Network + "/" + r.IfName, Request: r.Settings.Request, Broadcast: r.Broadcast,
	}
	for _, o := range r.Settings.Provide {
		id.Provide = append(id.Provide, exchange.Option(o))
	}
	return id
}

func (r record) families() []exchange.Family {
	var out []exchange.Family
	if r.Settings.IPv4 {
		out = append(out, exchange.IPv4)
	}
	if r.Settings.IPv6 {
		out = append(out, exchange.IPv6)
	}
	return out
}

// result is what the leases say, together.
func (r record) result() (model.Result, error) {
	var out model.Result
	for _, g := range r.Grants {
		l, err := g.Lease()
		if err != nil {
			return out, err
		}
		out.IPs = append(out.IPs, model.IP{Address: l.Address, Gateway: l.Gateway})
		for _, route := range l.Routes {
			route.Priority = r.Settings.Priority
			if l.MTU >= leastMTU && l.MTU < r.LinkMTU { // the interface's own needs no saying
				route.MTU = l.MTU
			}
			out.Routes = append(out.Routes, route)
		}
		out.DNS.Nameservers = union(out.DNS.Nameservers, l.DNS.Nameservers)
		out.DNS.Search = union(out.DNS.Search, l.DNS.Search)
		if out.DNS.Domain == "" {
			out.DNS.Domain = l.DNS.Domain
		}
	}
	return out, nil
}

// leastMTU is the least MTU that DHCP can speak of, in bytes.
const leastMTU = 68

func union(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}
