// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// Parties are who begins or answers connections that policies judge in a place: the addresses of the interfaces that they select.
func (x *Index) Parties(p Place) []state.Party {
	x.settle()
	var out []state.Party
	for _, e := range x.endpoints {
		if e.table.place != p {
			continue
		}
		begins, answers := e.chains[egress] != nil, e.chains[ingress] != nil
		for _, a := range e.Addrs {
			if begins || answers {
				out = append(out, state.Party{Addr: a, Begins: begins, Answers: answers})
			}
		}
	}
	slices.SortFunc(out, func(a, b state.Party) int { return a.Addr.Compare(b.Addr) })
	return out
}
