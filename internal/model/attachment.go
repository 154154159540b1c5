// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"math"
	"net/netip"
)

// AttachmentKey identifies one attachment of one container to one network.
type AttachmentKey struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// String is "network/container id/interface", the owner of the attachment's fragment.
func (k AttachmentKey) String() string { return k.Network + "/" + k.ContainerID + "/" + k.IfName }

// PluginConf is one plugin object of a network configuration list, still as JSON. Raw is what the plugin receives but
// for prevResult: name, cniVersion and runtimeConfig (declared capabilities that the caller provided) are filled in,
// capabilities taken out.
type PluginConf struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	Raw          json.RawMessage `json:"raw"`
}

// Network is one CNI network configuration list.
type Network struct {
	Name         string       `json:"name"`
	CNIVersion   string       `json:"cniVersion"`
	DisableCheck bool         `json:"disableCheck,omitempty"`
	DisableGC    bool         `json:"disableGC,omitempty"`
	Plugins      []PluginConf `json:"plugins"`
	// Raw is the list as it was read.
	Raw json.RawMessage `json:"-"`
}

// Request is what a caller asks for: attach this container's interface to the network, or undo it.
type Request struct {
	Network     string `json:"network"`
	CNIVersion  string `json:"cniVersion"` // the version of the result, as negotiated
	ContainerID string `json:"containerID"`
	// Netns is the path of the container's network namespace as the caller named it; empty on DEL when it is gone.
	Netns  string `json:"netns,omitempty"`
	IfName string `json:"ifName"`
	// Args are the pairs of CNI_ARGS in their order.
	Args [][2]string `json:"args,omitempty"`
	// CNIPath is CNI_PATH split: where foreign plugins are searched.
	CNIPath []string `json:"cniPath,omitempty"`
	// Part names the runtime's own call ("network/interface") when that holds several networks, of which this is one.
	Part string `json:"part,omitempty"`
	// Origin is nil where no pod is known.
	Origin *Origin `json:"origin,omitempty"`
}

// Key is the attachment that the request is about.
func (r Request) Key() AttachmentKey {
	return AttachmentKey{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Arg is the value of the last CNI_ARGS pair of that name.
func (r Request) Arg(name string) (string, bool) {
	for i := len(r.Args) - 1; i >= 0; i-- {
		if r.Args[i][0] == name {
			return r.Args[i][1], true
		}
	}
	return "", false
}

// Result is what an ADD gives, in the terms of CNI 1.1.0 (SPEC section 5). Older forms are converted at the border.
type Result struct {
	Interfaces []Interface `json:"interfaces,omitempty"`
	IPs        []IP        `json:"ips,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	DNS        DNS         `json:"dns,omitzero"`
	// PluginRoutes are the routes as the plugins gave them, where others became of them because the pod has several
	// networks; nil: they are Routes. Callers do not get them.
	PluginRoutes []Route `json:"pluginRoutes,omitzero"`
}

// Interface is one link that an attachment made or uses.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	MTU  int    `json:"mtu,omitempty"` // bytes
	// Sandbox is the namespace path of a link in the container, empty for a link of the node.
	Sandbox    string `json:"sandbox,omitempty"`
	SocketPath string `json:"socketPath,omitempty"`
	PciID      string `json:"pciID,omitempty"`
}

// IP is one address of an attachment.
type IP struct {
	// Interface indexes Result.Interfaces, nil when the result names none (an IPAM plugin's result).
	Interface *int         `json:"interface,omitempty"`
	Address   netip.Prefix `json:"address"`
	Gateway   netip.Addr   `json:"gateway,omitzero"`
}

// Route is a route for the container.
type Route struct {
	Dst      netip.Prefix `json:"dst"`
	GW       netip.Addr   `json:"gw,omitzero"`
	MTU      int          `json:"mtu,omitempty"`    // bytes
	AdvMSS   int          `json:"advmss,omitempty"` // bytes
	Priority int          `json:"priority,omitempty"`
	Table    *int         `json:"table,omitempty"`
	Scope    *int         `json:"scope,omitempty"`
}

// Unfit names the first number of a route that the kernel has no room for, by its key, and the largest one that fits;
// the key is empty where all of them fit. No number may be below 0.
func (r Route) Unfit() (key string, value, most int) {
	at := func(p *int) int {
		if p == nil {
			return 0
		}
		return *p
	}
	for _, n := range []struct {
		key         string
		value, most int
	}{
		{"mtu", r.MTU, math.MaxUint16},
		{"advmss", r.AdvMSS, math.MaxUint16},
		{"priority", r.Priority, math.MaxUint32},
		{"table", at(r.Table), math.MaxUint32},
		{"scope", at(r.Scope), math.MaxUint8},
	} {
		if n.value < 0 || n.value > n.most {
			return n.key, n.value, n.most
		}
	}
	return "", 0, 0
}

// DNS is what a network says about name resolution.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero tells whether nothing is set.
func (d DNS) IsZero() bool {
	return len(d.Nameservers)+len(d.Search)+len(d.Options) == 0 && d.Domain == ""
}
