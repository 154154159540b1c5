// SPDX-License-Identifier: Apache-2.0

package state

import "net/netip"

// Query is a question about the kernel that a planner needs answered before it plans. Exactly one field is set besides
// Space.
type Query struct {
	Space SpaceName `json:"space"`
	// Link queries a link by name, with its addresses.
	Link string `json:"link,omitempty"`
	// DefaultLink queries the link of the default route of the family "4" or "6".
	DefaultLink string `json:"defaultLink,omitempty"`
	// Except excludes the routes over a link from DefaultLink.
	Except string `json:"except,omitempty"`
	// Sysctl queries a setting's value.
	Sysctl string `json:"sysctl,omitempty"`
	// Routes queries the routes over a link.
	Routes string `json:"routes,omitempty"`
	// Main extends Routes to all routes of the main table, including those that the kernel adds.
	Main bool `json:"main,omitempty"`
	// Neighs queries the permanent neighbors of a link, which the kernel does not resolve.
	Neighs string `json:"neighs,omitempty"`
	// Gateways queries the MAC addresses of the gateways of the routes over a link; unknown ones are resolved on the
	// wire.
	Gateways string `json:"gateways,omitempty"`
	// OtherEnd queries the peer of the veth link of that name, if it is in the other space. For a tap with a mark it is
	// the tap with the same mark.
	OtherEnd string `json:"otherEnd,omitempty"`
	// ForwardDrop queries whether a base chain of nft drops what it does not accept of forwarded packets in the family
	// "4" or "6", as Docker and firewalls configure it: Answer.Value is "family table chain". With the prefix
	// LegacyForwardDrop it is about the FORWARD chain of iptables-legacy, which nft does not show. When the kernel has
	// that chain and the host has no program that reads it, Found is false and Answer.Value says so.
	ForwardDrop string `json:"dropped,omitempty"`
	// Chain queries whether the node may have a chain of iptables, as nft names it: "ip filter CNI-FORWARD".
	// Answer.Value lists the kinds of iptables as words: KindNFT if the chain exists there, KindLegacy if only that
	// program can tell.
	Chain string `json:"chain,omitempty"`
	// Comment makes Chain query the rules of that nftables chain that have this comment: Answer.Count is their number.
	Comment string `json:"comment,omitempty"`
	// Firewalld queries whether firewalld runs on the node.
	Firewalld bool `json:"firewalld,omitempty"`
	// LinkOf queries the link that holds an address, with all its addresses.
	LinkOf netip.Addr `json:"linkOf,omitzero"`
	// RouteTo queries the link over which packets to an address leave.
	RouteTo netip.Addr `json:"routeTo,omitzero"`
	// Device queries a network device of the node by its hardware properties.
	Device Device `json:"device,omitzero"`
	// Tables queries which routing tables are in use, and the rules.
	Tables bool `json:"tables,omitempty"`
	// File queries the content of a file of the node, by its path.
	File string `json:"file,omitempty"`
	// Tap queries whether tap devices can be made; if not, Answer.Value is the reason.
	Tap bool `json:"tap,omitempty"`
	// Program queries a program of the host by its name; Answer.Value is its path.
	Program string `json:"program,omitempty"`
}

// Answer is the kernel's answer to a query. Found is false when the object does not exist.
type Answer struct {
	Found  bool    `json:"found"`
	Link   Link    `json:"link,omitzero"`
	Addrs  []Addr  `json:"addrs,omitempty"`
	Routes []Route `json:"routes,omitempty"`
	Value  string  `json:"value,omitempty"`
	Count  int     `json:"count,omitempty"`
	Rules  []Rule  `json:"rules,omitempty"`
	Neighs []Neigh `json:"neighs,omitempty"`
	// Sysctls are the device's own settings.
	Sysctls []Sysctl `json:"sysctls,omitempty"`
	// Tables are the numbers of the routing tables that have a route, or that a rule or a VRF refers to.
	Tables []uint32 `json:"tables,omitempty"`
	// Driver is the driver of the device's hardware and PCI its address, if known. A device that a program drives in
	// user space is Found without a link.
	Driver string `json:"driver,omitempty"`
	PCI    string `json:"pci,omitempty"`
}

// Answers maps queries to answers.
type Answers map[Query]Answer

// Difference is one place where the kernel and a fragment disagree.
type Difference struct {
	Space SpaceName `json:"space"`
	// Want is what the fragment names and Have what the kernel has; an empty Have means that it is missing.
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

// The kinds of iptables in the answer to Query.Chain.
const (
	KindNFT    = "nft"
	KindLegacy = "legacy"
)

// LegacyForwardDrop is the prefix of the family in Query.ForwardDrop.
const LegacyForwardDrop = "legacy "
