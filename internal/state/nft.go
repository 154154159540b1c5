// SPDX-License-Identifier: Apache-2.0

package state

// Table is an nft table that weft owns, or the elements that one owner adds to it. The driver that knows how to render
// it as text and as netlink messages is kernel/nft.
type Table struct {
	Family string  `json:"family"` // ip, ip6, inet, bridge, netdev, arp
	Name   string  `json:"name"`
	Sets   []Set   `json:"sets,omitempty"`
	Chains []Chain `json:"chains,omitempty"`
	// Shared marks a table with several owners: Remove takes only the elements that the fragment names.
	Shared bool `json:"shared,omitempty"`
}

// Set is a named set or, with Data, a map. Key and Data are type expressions as nft prints them
// ("ipv4_addr . inet_service", "verdict").
type Set struct {
	Name     string    `json:"name"`
	Key      string    `json:"key"`
	Data     string    `json:"data,omitempty"`
	Interval bool      `json:"interval,omitempty"`
	Elements []Element `json:"elements,omitempty"`
	// Exclusive, in a shared table, is the beginning of the names of sets whose elements exclude each other: where one's
	// key is another's, or the end of another's, only one owner can have them. Apply refuses the second one, and Remove
	// takes only elements that bear their owner's comment.
	Exclusive string `json:"exclusive,omitempty"`
	// Owned, in a shared table, says that a key can pass from one owner to the next, as the name of a link does: the
	// elements are those of whoever applied them last, and Remove takes only elements that bear their owner's comment.
	Owned bool `json:"owned,omitempty"`
	// Learns, if not zero, says that rules add elements, at most so many, which fade after a while. The plan names none of
	// them, and nobody compares them.
	Learns int `json:"learns,omitempty"`
}

// Element is one element of a set or map, its parts in the form that nft prints.
type Element struct {
	Key []string `json:"key"`
	// Val is the value in a map: a verdict ("accept", "goto chain") or the parts of a data value.
	Val []string `json:"val,omitempty"`
	// Keeps is a statement that keeps count for this element alone, and must hold for the element to match: "limit rate
	// over 100/second burst 5 packets" or "ct count over 10".
	Keeps string `json:"keeps,omitempty"`
	// Comment carries the owner's mark.
	Comment string `json:"comment,omitempty"`
	// Shared marks an element with several owners: Remove leaves it, and it goes with its table. Its comment is
	// SharedComment.
	Shared bool `json:"shared,omitempty"`
}

// SharedComment is the comment of every element that has several owners, so that it is known where it is read.
const SharedComment = "weft:shared"

// Chain is a chain of rules. A base chain has a Hook.
type Chain struct {
	Name     string    `json:"name"`
	Type     string    `json:"type,omitempty"` // filter, nat, route
	Hook     string    `json:"hook,omitempty"` // prerouting, input, forward, output, postrouting, ingress, egress
	Priority int       `json:"priority,omitempty"`
	Policy   string    `json:"policy,omitempty"` // accept, drop
	Device   string    `json:"device,omitempty"` // netdev family
	Rules    []NftRule `json:"rules,omitempty"`
}

// NftRule is one rule in nft's own words ("ip saddr @masq4 masquerade"), of the subset that kernel/nft compiles to
// netlink expressions. Text for people and bytes for the kernel are thus one truth.
type NftRule struct {
	Text    string `json:"text"`
	Comment string `json:"comment,omitempty"`
}
