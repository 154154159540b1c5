// SPDX-License-Identifier: Apache-2.0

package state

// Table is an nft table that weft owns, or the elements that one owner adds to it. kernel/nft renders it as text and as
// netlink messages.
type Table struct {
	Family string  `json:"family"` // ip, ip6, inet, bridge, netdev, arp
	Name   string  `json:"name"`
	Sets   []Set   `json:"sets,omitempty"`
	Chains []Chain `json:"chains,omitempty"`
	// Flowtables of a table that is replaced as a whole (kernel/nft.Conn.Replace).
	Flowtables []Flowtable `json:"flowtables,omitempty"`
	// Volatile: the table ends with the socket that made it, and no other socket can change it (nft's flag owner, Linux
	// 5.12). It is replaced as a whole, too.
	Volatile bool `json:"volatile,omitempty"`
	// Shared marks a table with several owners: Remove deletes only the fragment's elements.
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
	// Exclusive, in a shared table, is the common prefix of the names of sets whose elements exclude each other: a key,
	// or a key of which another one is the end, can have only one owner. Apply refuses the second owner, and Remove
	// deletes only elements that have their owner's comment.
	Exclusive string `json:"exclusive,omitempty"`
	// Owned, in a shared table, means that a key can pass from one owner to the next, as the name of a link does:
	// elements belong to the owner that applied them last, and Remove deletes only elements that have their owner's
	// comment.
	Owned bool `json:"owned,omitempty"`
	// DynamicSize, if not zero, makes the set dynamic: rules add elements, at most so many, which expire. The plan has
	// no elements of such a set, and they are not compared.
	DynamicSize int `json:"learns,omitempty"`
}

// Element is one element of a set or map, its parts in the form that nft prints.
type Element struct {
	Key []string `json:"key"`
	// Val is the value in a map: a verdict ("accept", "goto chain") or the parts of a data value.
	Val []string `json:"val,omitempty"`
	// Stateful is a stateful statement of this element that must match, too: "limit rate over 100/second burst 5
	// packets" or "ct count over 10".
	Stateful string `json:"keeps,omitempty"`
	// Comment contains the owner's mark.
	Comment string `json:"comment,omitempty"`
	// Shared marks an element with several owners: Remove leaves it, and it is deleted with its table. Its comment is
	// SharedComment.
	Shared bool `json:"shared,omitempty"`
}

// SharedComment is the comment of every element that has several owners, so that it is recognized when it is read.
const SharedComment = "weft:shared"

// Flowtable is a shortcut of the flows that a rule "flow add @NAME" puts into it: their packets that arrive at Devices
// pass by netfilter and the routing. It counts them as packets of their connections.
type Flowtable struct {
	Name     string   `json:"name"`
	Priority int      `json:"priority,omitempty"`
	Devices  []string `json:"devices,omitempty"`
}

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

// NftRule is one rule as nft prints it ("ip saddr @masq4 masquerade"), in the subset of the language that kernel/nft
// compiles to netlink expressions. The text that users read is thus the source of the bytes that the kernel gets.
type NftRule struct {
	Text    string `json:"text"`
	Comment string `json:"comment,omitempty"`
}
