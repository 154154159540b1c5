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

// maxVLAN is the highest VLAN ID; 0 and 4095 are reserved.
const maxVLAN = 4094

// trunk is one item of vlanTrunk: the VLANs from minID to maxID, and id.
type trunk struct {
	MinID *int `json:"minID"`
	MaxID *int `json:"maxID"`
	ID    *int `json:"id"`
}

// checkVLANs rejects invalid VLAN IDs and incomplete ranges.
func (c bridgeConf) checkVLANs(conf model.PluginConf) error {
	reject := func(hint, format string, args ...any) error {
		return model.Errorf(model.CodeInvalidConf, hint, "plugin "+conf.Type+": "+format, args...)
	}
	if c.VLAN < 0 || c.VLAN > maxVLAN {
		return reject("0 is no VLAN", "vlan %d is not between 0 and %d", c.VLAN, maxVLAN)
	}
	for i, t := range c.VLANTrunk {
		for _, f := range []struct {
			key string
			id  *int
		}{{"minID", t.MinID}, {"maxID", t.MaxID}, {"id", t.ID}} {
			if f.id != nil && (*f.id < 1 || *f.id > maxVLAN) {
				return reject("", "vlanTrunk[%d].%s %d is not between 1 and %d", i, f.key, *f.id, maxVLAN)
			}
		}
		switch {
		case t.MinID != nil && t.MaxID == nil:
			return reject(`a range is {"minID": …, "maxID": …}`, "vlanTrunk[%d] has minID %d and no maxID", i, *t.MinID)
		case t.MinID == nil && t.MaxID != nil:
			return reject(`a range is {"minID": …, "maxID": …}`, "vlanTrunk[%d] has maxID %d and no minID", i, *t.MaxID)
		case t.MinID != nil && *t.MinID > *t.MaxID:
			return reject("", "vlanTrunk[%d].minID %d is above maxID %d", i, *t.MinID, *t.MaxID)
		}
	}
	if c.vlanGateway() && len(c.gatewayLink()) > maxLinkName {
		return reject("choose a shorter name for the bridge",
			"bridge %q with vlan %d: the gateway's link %q is too long for an interface name", c.Name, c.VLAN, c.gatewayLink())
	}
	return nil
}

// filtering reports whether the bridge filters by VLAN.
func (c bridgeConf) filtering() bool { return c.VLAN != 0 || len(c.VLANTrunk) > 0 }

// vlanGateway reports whether the gateway is in a VLAN of the bridge, and so on an interface of its own.
func (c bridgeConf) vlanGateway() bool { return c.VLAN != 0 && c.IsGateway && c.ipam }

// gatewayLink returns the name of the interface that has the gateway's addresses.
func (c bridgeConf) gatewayLink() string {
	if c.vlanGateway() {
		return fmt.Sprintf("%s.%d", c.Name, c.VLAN)
	}
	return c.Name
}

// portVLANs returns the VLANs of the container's port: the native VLAN, untagged in the container, and those of the
// trunk, tagged. The native VLAN of a trunk is 1 by default.
func (c bridgeConf) portVLANs() *state.PortVLANs {
	if !c.filtering() {
		return nil
	}
	own := max(c.VLAN, 1)
	out := &state.PortVLANs{Others: c.PreserveDefaultVLAN}
	for id := 1; id <= maxVLAN; id++ {
		if id != own && !c.trunked(id) {
			continue
		}
		n := len(out.Ranges)
		if n > 0 && int(out.Ranges[n-1].Last) == id-1 && id != own && id-1 != own {
			out.Ranges[n-1].Last++
			continue
		}
		out.Ranges = append(out.Ranges, state.VLANRange{
			First: uint16(id), Last: uint16(id), PVID: id == own, Untagged: id == own,
		})
	}
	return out
}

// trunked reports whether a VLAN is in vlanTrunk.
func (c bridgeConf) trunked(id int) bool {
	return slices.ContainsFunc(c.VLANTrunk, func(t trunk) bool {
		return t.ID != nil && *t.ID == id || t.MinID != nil && *t.MinID <= id && id <= *t.MaxID
	})
}

// vlanDevice returns the veth pair whose one end has the gateway's addresses and whose other end is a port of the
// bridge in the VLAN. An interface that another program created is used unchanged.
func (c bridgeConf) vlanDevice(in Input, gateways []netip.Prefix) []state.Link {
	name := c.gatewayLink()
	have := in.Answers[state.Query{Space: state.Host, Link: name}]
	if have.Found && have.Link.Alias != SharedMark {
		return []state.Link{{Name: name, MAC: have.Link.MAC, Up: state.On(), Shared: true}}
	}
	if in.IPAMTiming != IPAMFirst {
		gateways = nil // as for the bridge
	}
	seed := fmt.Sprintf("%s/vlan/%d", c.bridgeSeed(in, gateways), c.VLAN)
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
			VLANs: &state.PortVLANs{
				Ranges: []state.VLANRange{{First: uint16(c.VLAN), Last: uint16(c.VLAN), PVID: true, Untagged: true}}, //nolint:gosec // checkVLANs
				Others: c.PreserveDefaultVLAN,
			},
		},
		{
			Name: name, Kind: state.Veth, MAC: mac, MTU: c.MTU, Up: state.On(), Alias: SharedMark, Shared: true,
			Peer: &state.Peer{Space: state.Host, Name: port},
		},
	}
}

// gatewayInterface returns the VLAN gateway's interface for the result, which lists it after the container's.
func (c bridgeConf) gatewayInterface(links []state.Link) []model.Interface {
	for _, l := range links {
		if c.vlanGateway() && strings.EqualFold(l.Name, c.gatewayLink()) {
			return []model.Interface{{Name: l.Name, MAC: l.MAC.String()}}
		}
	}
	return nil
}
