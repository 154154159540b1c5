// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"testing"

	"github.com/weft-net/weft/internal/state"
)

// Selected entries are deleted, and returned with both ends before and after translation; the others stay.
func TestCut(t *testing.T) {
	ns := tracked(t)
	var k Conntrack
	seen := map[string]bool{}
	cut, err := k.Flush(ns, func(c state.Connection) bool {
		seen[fmt.Sprintf("%d %s>%s=%s", c.Proto, c.Src, c.Dst, c.ReplySrc)] = true
		return c.Dst.Port() == 53 && c.Proto == 17
	})
	if err != nil || len(cut) != 3 {
		t.Errorf("cut %v %v", cut, err)
	}
	for _, want := range []string{
		"17 198.51.100.1:1000>192.0.2.1:53=10.1.0.5:5353", "6 10.1.0.5:1000>203.0.113.1:443=203.0.113.1:443",
		"17 [2001:db8::9]:1000>[2001:db8::1]:53=[2001:db8::1]:53",
	} {
		if !seen[want] {
			t.Errorf("%s was not told: %v", want, seen)
		}
	}
	if got, want := left(t, ns), "tcp 192.0.2.1 53, tcp 203.0.113.1 443, udp 192.0.2.1 54, udp fd00:1::5 99"; got != want {
		t.Errorf("left: %s\nwant: %s", got, want)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}
