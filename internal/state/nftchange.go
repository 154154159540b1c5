// SPDX-License-Identifier: Apache-2.0

package state

// TableChange is what separates two values of one table that weft owns whole: what to write when nothing is read. The
// driver does all of it in one transaction, in the order of the fields.
type TableChange struct {
	Family string `json:"family"`
	Name   string `json:"name"`
	// MakeSets are new, with their elements.
	MakeSets []Set `json:"makeSets,omitempty"`
	// MakeChains are new; of one that is there the rules are exchanged.
	MakeChains []Chain `json:"makeChains,omitempty"`
	// DropElements and AddElements name elements of sets that stay. One whose value changes is dropped and added.
	DropElements []Set `json:"dropElements,omitempty"`
	AddElements  []Set `json:"addElements,omitempty"`
	// DropChains and DropSets are used by nobody any more.
	DropChains []string `json:"dropChains,omitempty"`
	DropSets   []string `json:"dropSets,omitempty"`
}

// Empty tells whether there is nothing to write.
func (c TableChange) Empty() bool {
	return len(c.MakeSets)+len(c.MakeChains)+len(c.DropElements)+len(c.AddElements)+len(c.DropChains)+len(c.DropSets) == 0
}
