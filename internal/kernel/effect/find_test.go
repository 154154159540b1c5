// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestFind: who begins and who answers is found by both families, each connection once, with few parties and with many;
// what is not theirs is not; and what is forgotten is that alone.
func TestFind(t *testing.T) {
	ns := nettest.NS(t, "finds")
	var k Tracker
	defer func() { _ = k.Close() }()
	track := func(from, to, answers string) state.Tracked {
		c := state.Connection{
			Proto: 17, From: netip.MustParseAddrPort(from), To: netip.MustParseAddrPort(to),
			Answers: netip.MustParseAddrPort(answers),
		}
		c.Back = c.From
		return state.Tracked{Connection: c, Timeout: 300, Answered: true, Assured: true}
	}
	all := []state.Tracked{
		track("10.0.0.1:1", "10.0.0.2:53", "10.0.0.2:53"), track("10.0.0.1:1", "10.96.0.1:80", "10.0.0.3:8080"),
		track("10.0.0.4:1", "10.0.0.5:53", "10.0.0.5:53"),
		track("10.0.0.5:1", "10.0.0.1:53", "10.0.0.1:53"),
		track("[fd00::1]:1", "[fd00::2]:53", "[fd00::2]:53"), track("[fd00::3]:1", "[fd00::4]:53", "[fd00::4]:53"),
	}
	if err := k.Track(ns, all, false); err != nil {
		t.Fatal(err)
	}
	party := func(addr string, begins, answers bool) state.Party {
		return state.Party{Addr: netip.MustParseAddr(addr), Begins: begins, Answers: answers}
	}
	var many []state.Party
	for i := range 100 {
		many = append(many, state.Party{Addr: netip.AddrFrom4([4]byte{172, 16, 0, byte(i)}), Begins: true, Answers: true})
	}
	for _, c := range []struct {
		parties []state.Party
		want    []string
	}{
		{nil, nil},
		{[]state.Party{party("10.0.0.9", true, true)}, nil},
		{[]state.Party{party("10.0.0.1", true, false)}, []string{"10.0.0.1:1>10.0.0.2:53", "10.0.0.1:1>10.0.0.3:8080"}},
		{[]state.Party{party("10.0.0.1", false, true)}, []string{"10.0.0.5:1>10.0.0.1:53"}},
		{
			[]state.Party{
				party("10.0.0.1", true, true), party("10.0.0.2", true, true), party("fd00::2", false, true),
				party("fd00::3", false, true),
			},
			[]string{"10.0.0.1:1>10.0.0.2:53", "10.0.0.1:1>10.0.0.3:8080", "10.0.0.5:1>10.0.0.1:53", "[fd00::1]:1>[fd00::2]:53"},
		},
		{[]state.Party{party("10.0.0.3", false, true), party("10.0.0.3", true, false)}, []string{"10.0.0.1:1>10.0.0.3:8080"}},
	} {
		for _, parties := range [][]state.Party{c.parties, append(slices.Clone(many), c.parties...)} {
			got := names(t, &k, ns, parties)
			if !slices.Equal(got, c.want) {
				t.Errorf("%d parties, %v: %v, want %v", len(parties), c.parties, got, c.want)
			}
		}
	}
	found, err := k.Find(ns, []state.Party{party("10.0.0.1", true, true), party("fd00::1", true, false)},
		func(c state.Connection) bool { return c.Answers.Port() == 53 })
	if err != nil || len(found) != 3 {
		t.Fatalf("%v %v", found, err)
	}
	for range 2 { // what has gone is no error
		if err := k.Forget(ns, found); err != nil {
			t.Error(err)
		}
	}
	left, err := k.List(ns, func(state.Connection) bool { return true })
	if err != nil || len(left) != 3 || slices.ContainsFunc(left, func(c state.Tracked) bool {
		return c.From.Addr() == found[0].From.Addr() && c.Answers.Port() == 53
	}) {
		t.Errorf("left %v %v", left, err)
	}
}

func names(t *testing.T, k *Tracker, ns *netns.NS, parties []state.Party) []string {
	t.Helper()
	found, err := k.Find(ns, parties, func(state.Connection) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range found {
		out = append(out, fmt.Sprintf("%s>%s", c.From, c.Answers))
	}
	slices.Sort(out)
	return out
}
