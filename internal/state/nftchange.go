// SPDX-License-Identifier: Apache-2.0

package state

// TableChange is the difference between two values of a table that weft owns as a whole: it is written without reading
// the table. The driver writes all of it in one transaction, in the order of the fields.
type TableChange struct {
	Family string `json:"family"`
	Name   string `json:"name"`
	// AddSets are new sets, with their elements.
	AddSets []Set `json:"makeSets,omitempty"`
	// AddChains are new chains, or existing ones whose rules are replaced.
	AddChains []Chain `json:"makeChains,omitempty"`
	// DeleteElements and AddElements are elements of sets that stay. An element whose value changes is deleted and
	// added.
	DeleteElements []Set `json:"dropElements,omitempty"`
	AddElements    []Set `json:"addElements,omitempty"`
	// DeleteChains and DeleteSets are no longer referenced.
	DeleteChains []string `json:"dropChains,omitempty"`
	DeleteSets   []string `json:"dropSets,omitempty"`
}

// Empty reports whether the change writes nothing.
func (c TableChange) Empty() bool {
	return len(
		c.AddSets,
	)+len(
		c.AddChains,
	)+len(
		c.DeleteElements,
	)+len(
		c.AddElements,
	)+len(
		c.DeleteChains,
	)+len(
		c.DeleteSets,
	) == 0
}
