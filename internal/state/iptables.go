// SPDX-License-Identifier: Apache-2.0

package state

import "fmt"

// IPTables is a part of one table of the host's iptables, for compatibility with plugins that use the iptables
// programs. Several values may name the same table.
type IPTables struct {
	IPv6  bool   `json:"ipv6,omitempty"`
	Table string `json:"table"` // nat, filter, mangle, raw
	// Legacy selects the tables that the kernel keeps outside nft (x_tables), which iptables-nft neither sees nor
	// changes. Without Legacy and NFT, the tables are those of the programs with the plain names, whichever kind these
	// are.
	Legacy bool `json:"legacy,omitempty"`
	// NFT selects the tables that the kernel keeps in nft, whichever kind the programs with the plain names are.
	NFT    bool      `json:"nft,omitempty"`
	Chains []IPChain `json:"chains"`
}

// IPChain is a chain of iptables. Chains are listed in the order in which they are created: a jump's target before the
// jump.
type IPChain struct {
	Name string `json:"name"`
	// Shared marks a chain with several owners (a built-in one, CNI-FORWARD): it is created when it is missing, its
	// rules are added to those of others, and it stays when they are removed. Any other chain belongs to the fragment:
	// it has exactly its rules, and Remove deletes it unless a rule outside the fragment jumps to it.
	Shared bool     `json:"shared,omitempty"`
	Rules  []IPRule `json:"rules,omitempty"`
}

// IPRule is one rule of a chain.
type IPRule struct {
	// Text is the rule as iptables-save prints it after "-A CHAIN": addresses with their prefix length, double quotes
	// around a word that contains a space, and a backslash before each double quote inside.
	Text string `json:"text"`
	// Loose marks a rule that iptables-save may print differently (an administrator wrote a part of it). Finding it
	// costs one more process.
	Loose bool `json:"loose,omitempty"`
	// First inserts a missing rule before all others of a shared chain; otherwise it is appended.
	First bool `json:"first,omitempty"`
	// Shared marks a rule with several owners in a shared chain (the jump to CNI-FORWARD): Remove leaves it.
	Shared bool `json:"shared,omitempty"`
}

// Program returns the name of the program that reads and writes the table.
func (t IPTables) Program() string {
	if t.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// String prints the table.
func (t IPTables) String() string { return fmt.Sprintf("%s table %s", t.Program(), t.Table) }
