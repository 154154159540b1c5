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

// PluginConf is one plugin object of a network configuration list, as JSON. Raw is the configuration for the plugin,
// without prevResult: name, cniVersion and runtimeConfig (declared capabilities that the caller provided) are filled
// in, capabilities removed.
type PluginConf struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
	Raw          json.RawMessage `json:"raw"`
}

// Network is a CNI network configuration list.
type Network struct {
	Name         string       `json:"name"`
	CNIVersion   string       `json:"cniVersion"`
	DisableCheck bool         `json:"disableCheck,omitempty"`
	DisableGC    bool         `json:"disableGC,omitempty"`
	Plugins      []PluginConf `json:"plugins"`
	// Raw is the list as it was read.
	Raw json.RawMessage `json:"-"`
}

// Request is a CNI call's parameters: attach this container's interface to the network, or detach it.
type Request struct {
	Network     string `json:"network"`
	CNIVersion  string `json:"cniVersion"` // the version of the result, as negotiated
	ContainerID string `json:"containerID"`
	// Netns is CNI_NETNS, the path of the container's network namespace; empty on DEL when it is gone.
	Netns  string `json:"netns,omitempty"`
	IfName string `json:"ifName"`
	// Args are the pairs of CNI_ARGS in their order.
	Args [][2]string `json:"args,omitempty"`
	// CNIPath is CNI_PATH, split: the directories of foreign plugins.
	CNIPath []string `json:"cniPath,omitempty"`
	// Part names the runtime's call ("network/interface") when it attaches several networks, of which this is one.
	Part string `json:"part,omitempty"`
	// Origin is nil where no pod is known.
	Origin *Origin `json:"origin,omitempty"`
}

// ContainerArg is the key of CNI_ARGS with the engine of a container without a Pod object ("docker"). The engine, not the
// plugin, moves the interface into the container.
const ContainerArg = "WEFT_CONTAINER"

// OfContainer reports whether the request is for a container without a Pod object.
func (r Request) OfContainer() bool {
	engine, _ := r.Arg(ContainerArg)
	return engine != ""
}

// Key returns the key of the request's attachment.
func (r Request) Key() AttachmentKey {
	return AttachmentKey{Network: r.Network, ContainerID: r.ContainerID, IfName: r.IfName}
}

// Arg returns the value of the last CNI_ARGS pair of that name.
func (r Request) Arg(name string) (string, bool) {
	for i := len(r.Args) - 1; i >= 0; i-- {
		if r.Args[i][0] == name {
			return r.Args[i][1], true
		}
	}
	return "", false
}

// Result is the result of an ADD, as in CNI 1.1.0 (SPEC section 5). Package cni converts older versions.
type Result struct {
	Interfaces []Interface `json:"interfaces,omitempty"`
	IPs        []IP        `json:"ips,omitempty"`
	Routes     []Route     `json:"routes,omitempty"`
	DNS        DNS         `json:"dns,omitzero"`
	// PluginRoutes are the routes as the plugins returned them, where Routes differ because the pod has several networks;
	// nil: they are Routes. They are not in the result for callers.
	PluginRoutes []Route `json:"pluginRoutes,omitzero"`
}

// Interface is one link that an attachment created or uses.
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

// OutOfRange returns the key of the first number of the route that is out of the kernel's range, its value and the
// largest valid one; the key is empty if all are in range. Negative numbers are out of range.
func (r Route) OutOfRange() (key string, value, limit int) {
	at := func(p *int) int {
		if p == nil {
			return 0
		}
		return *p
	}
	for _, n := range []struct {
		key          string
		value, limit int
	}{
		{"mtu", r.MTU, math.MaxUint16},
		{"advmss", r.AdvMSS, math.MaxUint16},
		{"priority", r.Priority, math.MaxUint32},
		{"table", at(r.Table), math.MaxUint32},
		{"scope", at(r.Scope), math.MaxUint8},
	} {
		if n.value < 0 || n.value > n.limit {
			return n.key, n.value, n.limit
		}
	}
	return "", 0, 0
}

// DNS is a network's configuration of name resolution.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether nothing is set.
func (d DNS) IsZero() bool {
	return len(d.Nameservers)+len(d.Search)+len(d.Options) == 0 && d.Domain == ""
}
