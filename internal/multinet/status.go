// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Got is the result of an attachment.
type Got struct {
	Label   string
	Primary bool
	Result  model.Result
	Device  *DeviceInfo
	// Version is the CNI version that the network's configuration names: empty where it names none.
	Version string
}

// NewGot returns the result of an attachment with its origin; the network is as its plugins get it.
func NewGot(origin *model.Origin, n model.Network, r model.Result) Got {
	g := Got{
		Label: origin.Network, Primary: origin.Primary, Result: r, Device: ReadDeviceInfo(origin.DeviceFile),
		Version: n.CNIVersion,
	}
	if origin.NoVersion {
		g.Version = ""
	}
	return g
}

// statusEntry is one element of the annotation, its keys in Multus' order.
type statusEntry struct {
	Name      string      `json:"name"`
	Interface string      `json:"interface,omitempty"`
	IPs       []string    `json:"ips,omitempty"`
	MAC       string      `json:"mac,omitempty"`
	MTU       int         `json:"mtu,omitempty"`
	Default   bool        `json:"default,omitempty"`
	DNS       model.DNS   `json:"dns"`
	Device    *DeviceInfo `json:"device-info,omitempty"`
	Gateway   []string    `json:"gateway,omitempty"`
}

// Status is the value of the annotation StatusKey, byte for byte as Multus writes it.
func Status(all []Got) (string, error) {
	var texts []string
	for _, g := range all {
		for _, e := range g.entries() {
			b, err := json.MarshalIndent(e, "", "    ")
			if err != nil {
				return "", fmt.Errorf("network status of %s: %w", g.Label, err)
			}
			texts = append(texts, string(b))
		}
	}
	return "[" + strings.Join(texts, ",") + "]", nil
}

// entries are one for each interface that the attachment has in the container, and one where it lists a single
// interface or none in the container.
func (g Got) entries() []statusEntry {
	r := g.Result
	if !cni.AtLeast(g.Version, "0.3.0") {
		return nil // as with Multus: such a result names no interface
	}
	routes := r.Routes
	if r.PluginRoutes != nil {
		routes = r.PluginRoutes
	}
	base := statusEntry{Name: g.Label, DNS: r.DNS, Device: g.Device, Gateway: gateways(routes)}
	if len(r.Interfaces) == 1 {
		base.Default = g.Primary
		if i := r.Interfaces[0]; i.Sandbox != "" {
			base.Interface, base.MAC, base.MTU = i.Name, i.MAC, i.MTU
		}
		for _, ip := range r.IPs {
			base.IPs = append(base.IPs, ip.Address.Addr().String())
		}
		return []statusEntry{base}
	}
	var out []statusEntry
	at := map[int]int{} // the entry of an interface
	for i, link := range r.Interfaces {
		if link.Sandbox == "" {
			continue
		}
		e := base
		e.Interface, e.MAC, e.MTU = link.Name, link.MAC, link.MTU
		at[i] = len(out)
		out = append(out, e)
	}
	if len(out) == 0 {
		return nil
	}
	for _, ip := range r.IPs {
		k := len(out) - 1 // an address without an interface is the last one's
		if ip.Interface != nil {
			var ok bool
			if k, ok = at[*ip.Interface]; !ok {
				continue
			}
		}
		out[k].IPs = append(out[k].IPs, ip.Address.Addr().String())
	}
	if g.Primary {
		if k, ok := defaultEntry(r.IPs, at); ok {
			out[k].Default = true
		}
	}
	return out
}

// defaultEntry is the entry of the first address with a gateway; where none has one, the first.
func defaultEntry(ips []model.IP, at map[int]int) (int, bool) {
	for _, ip := range ips {
		if ip.Gateway.IsValid() && ip.Interface != nil {
			k, ok := at[*ip.Interface]
			return k, ok
		}
	}
	return 0, true
}

// gateways returns those of the default routes. A route without one is written as Multus does.
func gateways(routes []model.Route) []string {
	var out []string
	for _, r := range routes {
		if !r.Dst.Addr().IsUnspecified() {
			continue
		}
		if r.GW == (netip.Addr{}) {
			out = append(out, "<nil>")
			continue
		}
		out = append(out, r.GW.String())
	}
	return out
}
