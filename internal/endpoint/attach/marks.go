// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// sameMark reports whether a mark that was found is the wanted one. The comment of an nftables element is shorter than
// an ifalias and may be truncated.
func sameMark(found, want string) bool {
	const shortest = 100 // no mark is truncated below this
	return found == want || len(found) >= shortest && strings.HasPrefix(want, found)
}

// MarkPrefix is the prefix of the marks of objects that weft has made.
const MarkPrefix = "weft:"

func chosenElements(s state.Set, marked func(string) bool) state.Set {
	out := state.Set{Name: s.Name, Key: s.Key, Data: s.Data, Interval: s.Interval}
	for _, e := range s.Elements {
		if marked(e.Comment) {
			out.Elements = append(out.Elements, e)
		}
	}
	return out
}
