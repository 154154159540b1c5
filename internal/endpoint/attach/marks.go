// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// sameMark tells whether a mark that was found is the wanted one. The comment of an nft element holds less than an
// ifalias, so it may be the beginning of it.
func sameMark(found, want string) bool {
	const shortest = 100 // nobody cuts a mark below this
	return found == want || len(found) >= shortest && strings.HasPrefix(want, found)
}

const markPrefix = "weft:"

func chosenElements(s state.Set, marked func(string) bool) state.Set {
	out := state.Set{Name: s.Name, Key: s.Key, Data: s.Data, Interval: s.Interval}
	for _, e := range s.Elements {
		if marked(e.Comment) {
			out.Elements = append(out.Elements, e)
		}
	}
	return out
}
