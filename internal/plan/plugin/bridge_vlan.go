// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// mostVlan is the highest number of a VLAN; 0 and 4095 are reserved.
const mostVlan = 4094

// trunk is one item of vlanTrunk: the VLANs from minID to maxID, and id.
type trunk struct {
	MinID *int `json:"minID"`
	MaxID *int `json:"maxID"`
	ID    *int `json:"id"`
}

// checkVlans refuses numbers that no VLAN has, and halves of ranges.
func (c bridgeConf) checkVlans(conf model.PluginConf) error {
	refuse := func(hint, format string, args ...any) error {
		return model.Faultf(model.CodeInvalidConf, hint, "plugin "+conf.Type+": "+format, args...)
	}
	if c.Vlan < 0 || c.Vlan > mostVlan {
		return refuse("0 is no VLAN", "vlan %d is not between 0 and %d", c.Vlan, mostVlan)
	}
	for i, t := range c.VlanTrunk {
		for _, f := range []struct {
			key string
			id  *int
		}{{"minID", t.MinID}, {"maxID", t.MaxID}, {"id", t.ID}} {
			if f.id != nil && (*f.id < 1 || *f.id > mostVlan) {
				return refuse("", "vlanTrunk[%d].%s %d is not between 1 and %d", i, f.key, *f.id, mostVlan)
			}
		}
		switch {
		case t.MinID != nil && t.MaxID == nil:
			return refuse(`a range is {"minID": …, "maxID": …}`, "vlanTrunk[%d] has minID %d and no maxID", i, *t.MinID)
		case t.MinID == nil && t.MaxID != nil:
			return refuse(`a range is {"minID": …, "maxID": …}`, "vlanTrunk[%d] has maxID %d and no minID", i, *t.MaxID)
		case t.MinID != nil && *t.MinID > *t.MaxID:
			return refuse("", "vlanTrunk[%d].minID %d is above maxID %d", i, *t.MinID, *t.MaxID)
		case t.MinID == nil && t.ID == nil:
			return refuse(`write {"id": …} or {"minID": …, "maxID": …}`, "vlanTrunk[%d] names no VLAN", i)
		}
	}
	if c.vlanGateway() && len(c.gatewayLink()) > mostLinkName {
		return refuse("choose a shorter name for the bridge",
			"bridge %q with vlan %d: the gateway's link %q is too long for a link's name", c.Name, c.Vlan, c.gatewayLink())
	}
	return nil
}

// filtering tells whether the bridge looks at VLANs.
func (c bridgeConf) filtering() bool { return c.Vlan != 0 || len(c.VlanTrunk) > 0 }

// vlanGateway tells whether the gateway is in a VLAN of the bridge, and so on a link of its own.
func (c bridgeConf) vlanGateway() bool { return c.Vlan != 0 && c.IsGateway && c.ipam }

// gatewayLink is where the gateway's addresses are.
func (c bridgeConf) gatewayLink() string {
	if c.vlanGateway() {
		return fmt.Sprintf("%s.%d", c.Name, c.Vlan)
	}
	return c.Name
}

// portVlans are the VLANs of the container's port: its own one, whose frames have no tag in the container, and with
// tags those of the trunk. A trunk without an own one has VLAN 1 for it.
func (c bridgeConf) portVlans() *state.PortVlans {
	if !c.filtering() {
		return nil
	}
	own := max(c.Vlan, 1)
	out := &state.PortVlans{Others: c.PreserveDefaultVlan}
	for id := 1; id <= mostVlan; id++ {
		if id != own && !c.trunked(id) {
			continue
		}
		n := len(out.Ranges)
		if n > 0 && int(out.Ranges[n-1].Last) == id-1 && id != own && id-1 != own {
			out.Ranges[n-1].Last++
			continue
		}
		out.Ranges = append(out.Ranges, state.VlanRange{
			First: uint16(id), Last: uint16(id), PVID: id == own, Untagged: id == own,
		})
	}
	return out
}

// trunked tells whether a VLAN is in vlanTrunk.
func (c bridgeConf) trunked(id int) bool {
	return slices.ContainsFunc(c.VlanTrunk, func(t trunk) bool {
		return t.ID != nil && *t.ID == id || t.MinID != nil && *t.MinID <= id && id <= *t.MaxID
	})
}

// vlanDevice is the link that has the gateway's addresses in a VLAN: one end of a pair whose other end is a port of the
// bridge in that VLAN. One that somebody else made is used as it is.
func (c bridgeConf) vlanDevice(in Input, gateways []netip.Prefix) []state.Link {
	name := c.gatewayLink()
	have := in.Answers[state.Query{Space: state.Host, Link: name}]
	if have.Found && have.Link.Alias != SharedMark {
		return []state.Link{{Name: name, MAC: have.Link.MAC, Up: state.On(), Shared: true}}
	}
	if in.Late != Early {
		gateways = nil // as in the bridge's own
	}
	seed := fmt.Sprintf("%s/vlan/%d", c.bridgeSeed(in, gateways), c.Vlan)
	sum := sha256.Sum256([]byte("bridge/" + name + "/port"))
	port := "veth" + hex.EncodeToString(sum[:6])[:11]
	mac, portMAC := state.SeedMAC(seed), state.SeedMAC(seed+"/port")
	if have.Found {
		mac = have.Link.MAC
	}
	portMAC[0] = 0xfe // see hostMAC
	return []state.Link{
		{
			Name: port, Kind: state.Veth, MAC: portMAC, MTU: c.MTU, Up: state.On(), Master: c.Name, Alias: SharedMark,
			Shared: true,
			Peer:   &state.Peer{Space: state.Host, Name: name},
			Vlans: &state.PortVlans{
				Ranges: []state.VlanRange{{First: uint16(c.Vlan), Last: uint16(c.Vlan), PVID: true, Untagged: true}}, //nolint:gosec // checkVlans
				Others: c.PreserveDefaultVlan,
			},
		},
		{
			Name: name, Kind: state.Veth, MAC: mac, MTU: c.MTU, Up: state.On(), Alias: SharedMark, Shared: true,
			Peer: &state.Peer{Space: state.Host, Name: port},
		},
	}
}

// gatewayInterface is the VLAN gateway's link as a result names it: behind the container's.
func (c bridgeConf) gatewayInterface(links []state.Link) []model.Interface {
	for _, l := range links {
		if c.vlanGateway() && strings.EqualFold(l.Name, c.gatewayLink()) {
			return []model.Interface{{Name: l.Name, MAC: l.MAC.String()}}
		}
	}
	return nil
}
