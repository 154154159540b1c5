// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// Query is something a planner must know of the kernel before it plans. Exactly one of the fields beside Space is set.
type Query struct {
	Space SpaceName `json:"space"`
	// Link asks for a link by name, with its addresses.
	Link string `json:"link,omitempty"`
	// DefaultLink asks for the link of the default route of the family "4" or "6".
	DefaultLink string `json:"defaultLink,omitempty"`
	// Except leaves the routes over a link out of DefaultLink.
	Except string `json:"except,omitempty"`
	// Sysctl asks for a setting's value.
	Sysctl string `json:"sysctl,omitempty"`
	// Routes asks for the routes over a link.
	Routes string `json:"routes,omitempty"`
	// Main makes of Routes all those of the main table, the kernel's own included.
	Main bool `json:"main,omitempty"`
	// Neighs asks for the neighbors of a link that somebody has set: the kernel does not ask for those.
	Neighs string `json:"neighs,omitempty"`
	// Gateways asks for the hardware addresses of the gateways of the routes over a link; one that is not known is asked
	// for on the wire.
	Gateways string `json:"gateways,omitempty"`
	// OtherEnd asks for the other end of the veth link of that name: where it is in the other space, as far as it is
	// there. That of a tap that is marked is the tap of the same mark.
	OtherEnd string `json:"otherEnd,omitempty"`
	// Dropped asks whether a base chain of nft refuses what it does not accept of what is forwarded in the family "4" or
	// "6", as Docker and firewalls have it: Answer.Value is "family table chain". With LegacyDropped before the family it
	// is about the FORWARD chain of the older iptables, which nft does not show. Where these are in the kernel and the
	// host has no program that reads them, Found is false and Answer.Value says so.
	Dropped string `json:"dropped,omitempty"`
	// Chain asks whether the node may have a chain of iptables, as nft names it: "ip filter CNI-FORWARD". Answer.Value
	// names the kinds of iptables, as words: KindNFT where it is there, KindLegacy where only their program knows.
	Chain string `json:"chain,omitempty"`
	// Firewalld asks whether firewalld runs on the node.
	Firewalld bool `json:"firewalld,omitempty"`
	// LinkOf asks for the link that holds an address, with all its addresses.
	LinkOf netip.Addr `json:"linkOf,omitzero"`
	// RouteTo asks for the link over which packets to an address leave.
	RouteTo netip.Addr `json:"routeTo,omitzero"`
	// Device asks for a network device of the machine by what is known of its hardware.
	Device Device `json:"device,omitzero"`
	// Tables asks which routing tables are in use, and for the rules.
	Tables bool `json:"tables,omitempty"`
	// File asks for the text of a file of the machine, by its path.
	File string `json:"file,omitempty"`
	// Tap asks whether tap devices can be made; where not, Answer.Value says why.
	Tap bool `json:"tap,omitempty"`
	// Program asks for a program of the host by its name; Answer.Value is its path.
	Program string `json:"program,omitempty"`
}

// Answer is what the kernel said to a query. A thing that is not there has Found false.
type Answer struct {
	Found  bool    `json:"found"`
	Link   Link    `json:"link,omitzero"`
	Addrs  []Addr  `json:"addrs,omitempty"`
	Routes []Route `json:"routes,omitempty"`
	Value  string  `json:"value,omitempty"`
	Rules  []Rule  `json:"rules,omitempty"`
	Neighs []Neigh `json:"neighs,omitempty"`
	// Sysctls are a device's own settings.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	// Tables are the numbers of the routing tables that hold a route, that a rule leads to or that a VRF has.
	Tables []uint32 `json:"tables,omitempty"`
	// Driver is the driver of a device's hardware and PCI its address, where they are known. A device that a program
	// drives by itself is Found without a link.
	Driver string `json:"driver,omitempty"`
	PCI    string `json:"pci,omitempty"`
}

// Answers maps queries to what the kernel said.
type Answers map[Query]Answer

// Difference is one place where the kernel and a fragment disagree.
type Difference struct {
	Space SpaceName `json:"space"`
	// Want is what the fragment names and Have what the kernel holds; an empty Have means that it is missing.
	Want string `json:"want,omitempty"`
	Have string `json:"have,omitempty"`
}

// String prints the difference as one clause of a sentence.
func (d Difference) String() string {
	if d.Have == "" {
		return string(d.Space) + ": missing " + d.Want
	}
	return string(d.Space) + ": want " + d.Want + ", have " + d.Have
}

// The kinds of iptables that are named where a chain is asked for.
const (
	KindNFT    = "nft"
	KindLegacy = "legacy"
)

// LegacyDropped is put before the family in Query.Dropped.
const LegacyDropped = "legacy "
