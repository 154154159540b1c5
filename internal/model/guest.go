// SPDX-License-Identifier: Apache-2.0

package model

import "net/netip"

// VMDevice is an interface as a hypervisor is told of it.
type VMDevice struct {
	// Name is the interface's in the manifest.
	Name string `json:"name"`
	// Target is the pod's link that the hypervisor opens; a device of the machine has HostPCI instead.
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
	// OnNode tells that the target is the node's link, not the pod's: the hypervisor is given it opened.
	OnNode bool `json:"onNode,omitempty"`
}

// Guest is what a guest is told on one of its wires. Nothing in it is a manifest's: who speaks to guests reads none.
type Guest struct {
	// Interface is the guest's interface by its name in the manifest, PodLink the pod's link of its network.
	Interface string `json:"interface"`
	PodLink   string `json:"podLink"`
	// Link is where it is told, and LinkMAC that link's address.
	Link    string `json:"link"`
	LinkMAC string `json:"linkMAC"`
	// OnNode tells that the link is the node's, not the pod's.
	OnNode bool `json:"onNode,omitempty"`
	// MAC is the guest's; where it is set nobody else is answered.
	MAC   string      `json:"mac,omitempty"`
	DHCP4 *GuestDHCP4 `json:"dhcp4,omitempty"`
	DHCP6 *GuestDHCP6 `json:"dhcp6,omitempty"`
	RA    *GuestRA    `json:"ra,omitempty"`
}

// GuestDHCP4 is the one lease of DHCP that a wire has.
type GuestDHCP4 struct {
	Address netip.Prefix `json:"address"`
	// Server is whom the guest hears of, Router its gateway where one is in its subnet or reached by Routes.
	Server   netip.Addr   `json:"server"`
	Router   netip.Addr   `json:"router,omitzero"`
	Routes   []GuestRoute `json:"routes,omitempty"`
	MTU      int          `json:"mtu"`
	Hostname string       `json:"hostname,omitempty"`
	Domain   string       `json:"domain,omitempty"`
	DNS      []netip.Addr `json:"dns,omitempty"`
	Search   []string     `json:"search,omitempty"`
	// Chosen are the manifest's own options.
	Chosen VMDHCP `json:"chosen,omitzero"`
}

// GuestRoute is a route of option 121; without a gateway the destination is on the guest's own wire.
type GuestRoute struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"`
}

// GuestDHCP6 is the one lease of DHCPv6 that a wire has.
type GuestDHCP6 struct {
	Address netip.Addr   `json:"address"`
	DNS     []netip.Addr `json:"dns,omitempty"`
	Search  []string     `json:"search,omitempty"`
}

// GuestRA is a router's advertisement: that DHCPv6 is there, and that the way out is here.
type GuestRA struct {
	// Prefix is on the guest's wire; addresses in it come from DHCPv6 alone.
	Prefix netip.Prefix `json:"prefix"`
	MTU    int          `json:"mtu"`
	DNS    []netip.Addr `json:"dns,omitempty"`
	Search []string     `json:"search,omitempty"`
}
