// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// VMDevice is an interface as configured in a hypervisor.
type VMDevice struct {
	// Name is the interface's name in the manifest.
	Name string `json:"name"`
	// Target is the pod's link that the hypervisor opens; a passed-through device has HostPCI instead.
	Target     string `json:"target,omitempty"`
	HostPCI    string `json:"hostPCI,omitempty"`
	MAC        string `json:"mac,omitempty"`
	MTU        int    `json:"mtu,omitempty"`
	Model      string `json:"model,omitempty"`
	Queues     int    `json:"queues,omitempty"`
	BootOrder  uint   `json:"bootOrder,omitempty"`
	PCIAddress string `json:"pciAddress,omitempty"`
	ACPIIndex  uint   `json:"acpiIndex,omitempty"`
	Down       bool   `json:"down,omitempty"`
	// OnNode: the target is the node's link, not the pod's: the hypervisor receives its file descriptor.
	OnNode bool `json:"onNode,omitempty"`
}

// GuestConfig is the configuration of the DHCP and router advertisement server for one interface of a guest. The server
// needs nothing else of the VM's manifest.
type GuestConfig struct {
	// Interface is the name of the guest's interface in the manifest, PodLink the pod's link of its network.
	Interface string `json:"interface"`
	PodLink   string `json:"podLink"`
	// Link is the link that the server listens on, and LinkMAC that link's MAC address.
	Link    string `json:"link"`
	LinkMAC string `json:"linkMAC"`
	// OnNode: the link is the node's, not the pod's.
	OnNode bool `json:"onNode,omitempty"`
	// MAC is the guest's MAC address; if it is set, the server answers this client only.
	MAC   string      `json:"mac,omitempty"`
	DHCP4 *GuestDHCP4 `json:"dhcp4,omitempty"`
	DHCP6 *GuestDHCP6 `json:"dhcp6,omitempty"`
	RA    *GuestRA    `json:"ra,omitempty"`
}

// GuestDHCP4 is the only DHCP lease of an interface.
type GuestDHCP4 struct {
	Address netip.Prefix `json:"address"`
	// Server is the server identifier; Router is the gateway if it is in the subnet or reached by Routes, the classless
	// static routes (option 121).
	Server   netip.Addr   `json:"server"`
	Router   netip.Addr   `json:"router,omitzero"`
	Routes   []GuestRoute `json:"routes,omitempty"`
	MTU      int          `json:"mtu"`
	Hostname string       `json:"hostname,omitempty"`
	Domain   string       `json:"domain,omitempty"`
	DNS      []netip.Addr `json:"dns,omitempty"`
	Search   []string     `json:"search,omitempty"`
	// Options are the manifest's DHCP options.
	Options VMDHCP `json:"chosen,omitzero"`
}

// GuestRoute is a route of DHCP option 121; without a gateway the destination is on-link.
type GuestRoute struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"`
}

// GuestDHCP6 is the only DHCPv6 lease of an interface.
type GuestDHCP6 struct {
	Address netip.Addr   `json:"address"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Search  []string     `json:"search,omitempty"`
}

// GuestRA is a router advertisement with the managed flag (DHCPv6) and, unless NoRouter is set, a default route.
type GuestRA struct {
	// NoRouter: the network has no router, and the guest no default route by it.
	NoRouter bool `json:"noRouter,omitempty"`
	// Prefix is on-link; addresses in it come from DHCPv6 only (no SLAAC).
	Prefix netip.Prefix `json:"prefix"`
	MTU    int          `json:"mtu"`
	DNS    []netip.Addr `json:"dns,omitempty"`
	Search []string     `json:"search,omitempty"`
}
