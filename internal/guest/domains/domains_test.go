// SPDX-License-Identifier: Apache-2.0

package domains

import (
	"strings"
	"testing"
)

func TestAppend(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		names []string
		limit int
		want  string
	}{
		{[]string{"cluster.local"}, 255, "\x07cluster\x05local\x00"},
		{[]string{"a.", "b.c"}, 255, "\x01a\x00\x01b\x01c\x00"},
		{[]string{"", "a..b", long, "a b", "c"}, 255, "\x01c\x00"},
		{[]string{"aa", "bb"}, 7, "\x02aa\x00"},
		{[]string{strings.Repeat("abc.", 70) + "d", "e"}, 500, "\x01e\x00"},
		{nil, 255, ""},
	} {
		if got := Append([]byte("x"), c.names, c.limit); string(got) != "x"+c.want {
			t.Errorf("%q: %q, want %q", c.names, got, "x"+c.want)
		}
	}
}
