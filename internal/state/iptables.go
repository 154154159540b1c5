// SPDX-License-Identifier: Apache-2.0

package state

import "fmt"

// IPTables is a part of one table of the host's iptables: what compatibility with plugins that use the iptables
// programs needs. Several values may name the same table.
type IPTables struct {
	IPv6  bool   `json:"ipv6,omitempty"`
	Table string `json:"table"` // nat, filter, mangle, raw
	// Legacy means the tables that the kernel keeps without nft, which the programs of the other kind neither see nor
	// change. Otherwise they are those of the programs with the plain names, whichever kind that is.
	Legacy bool `json:"legacy,omitempty"`
	// NFT means the tables that the kernel keeps in nft, whichever kind the plain names are.
	NFT    bool      `json:"nft,omitempty"`
	Chains []IPChain `json:"chains"`
}

// IPChain is a chain of iptables. Chains are named in the order in which they are made: one that is jumped to first.
type IPChain struct {
	Name string `json:"name"`
	// Shared marks a chain with several owners (a built-in one, CNI-FORWARD): it is made where it is missing, its rules
	// are put beside those of others, and it stays when they go. Another chain is the fragment's alone: it holds exactly
	// its rules, and Remove takes it away, unless a rule that the fragment does not name leads to it.
	Shared bool     `json:"shared,omitempty"`
	Rules  []IPRule `json:"rules,omitempty"`
}

// IPRule is one rule of a chain.
type IPRule struct {
	// Text is the rule as iptables-save prints it behind "-A CHAIN": addresses with their length, double quotes around
	// what has a space in it and a backslash before each double quote inside.
	Text string `json:"text"`
	// Loose tells that iptables-save may print the rule in other words (an administrator wrote a part of it). Looking for
	// it then costs one more process.
	Loose bool `json:"loose,omitempty"`
	// First puts a missing rule before all others of a shared chain; otherwise it goes behind them.
	First bool `json:"first,omitempty"`
	// Shared marks a rule with several owners in a shared chain (the jump to CNI-FORWARD): Remove leaves it.
	Shared bool `json:"shared,omitempty"`
}

// Program is the name of the program that reads and writes the table.
func (t IPTables) Program() string {
	if t.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// String prints what the value is about.
func (t IPTables) String() string { return fmt.Sprintf("%s table %s", t.Program(), t.Table) }
