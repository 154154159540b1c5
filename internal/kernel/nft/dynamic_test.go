// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// learning returns a table whose rules record the ends of connections.
func learning() state.Table {
	const flow = "inet_proto . ipv4_addr . inet_service . ipv4_addr . inet_service"
	const there, back = "meta l4proto . ip saddr . th sport . ip daddr . th dport",
		"meta l4proto . ip daddr . th dport . ip saddr . th sport"
	return state.Table{
		Family: "inet", Name: "weft",
		Sets: []state.Set{
			{Name: "known", Key: flow, DynamicSize: 1024}, {Name: "pieces", Key: "ipv4_addr . inet_service", DynamicSize: 16},
		},
		Chains: []state.Chain{
			{Name: "out", Type: "filter", Hook: "output", Rules: ruled(
				"tcp flags fin,rst "+there+" @known delete @known { "+there+" }",
				"meta l4proto tcp update @known { "+there+" timeout 1d2h }",
				"ip frag-off & 16383 == 8192 update @pieces { ip saddr . ip id timeout 30s }",
				"icmp type 8 update @known { meta l4proto . ip saddr . icmp id . ip daddr . icmp id timeout 30s }",
			)},
			{Name: "in", Type: "filter", Hook: "input", Policy: "drop", Rules: ruled(
				back+" @known accept", "icmp type 8 accept",
				"icmp type 0 meta l4proto . ip daddr . icmp id . ip saddr . icmp id @known accept",
				"icmp type 3 @th,64,8 69 @th,136,8 . @th,160,32 . @th,224,16 . @th,192,32 . @th,240,16 @known accept",
			)},
		},
	}
}

// TestLearn: elements that rules have added to a set are no difference, stay when the table is applied again, and are
// read and deleted by their keys.
func TestLearn(t *testing.T) {
	ns := nettest.NS(t, "n")
	nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
	c := dial(t, ns)
	apply(t, c, learning())
	nettest.Run(t, ns, "ping", "-c", "1", "-W", "5", "127.0.0.1") // the reply matches the recorded request
	before := gen(t, ns)
	apply(t, c, learning())
	if now := gen(t, ns); now != before {
		t.Error("a second Apply wrote something")
	}
	if d, err := c.Read(bounded(t), []state.Table{learning()}); err != nil ||
		len(lang.Diff([]state.Table{learning()}, d)) > 0 {
		t.Errorf("differs: %v %v", lang.Diff([]state.Table{learning()}, d), err)
	}
	learnt, err := c.DynamicElements(bounded(t), "inet", "weft", learning().Sets[0])
	if err != nil || len(learnt) != 1 || learnt[0].Key[0] != "icmp" || learnt[0].Key[1] != "127.0.0.1" {
		t.Fatalf("learnt %v, %v", learnt, err)
	}
	gone := learning().Sets[0]
	gone.Elements = slices.Concat(learnt, elements("tcp . 1.1.1.1 . 1 . 1.1.1.1 . 2")) // one of them does not exist
	if err := c.DeleteDynamic(bounded(t), "inet", "weft", gone); err != nil {
		t.Error(err)
	}
	if left, err := c.DynamicElements(bounded(t), "inet", "weft", learning().Sets[0]); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestLearnText: the text is nft's own.
func TestLearnText(t *testing.T) {
	tbl := learning()
	tbl.Chains[1].Rules = tbl.Chains[1].Rules[:1] // nft has names for the others' numbers
	tbl.Chains[0].Rules = tbl.Chains[0].Rules[:2]
	ns := nettest.NS(t, "n")
	text, err := lang.Text(tbl)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, dial(t, ns), tbl)
	if d := cmp.Diff(text, list(t, ns, tbl)); d != "" {
		t.Error(d)
	}
}

func TestLearnBad(t *testing.T) {
	for text, want := range map[string]string{
		"update @plain { ip saddr timeout 2m }":             "rules add nothing to the set plain",
		"update @known { ip saddr timeout 2m }":             "the key is ipv4_addr, the set holds",
		"update @nobody { ip saddr }":                       "no set \"nobody\"",
		"update @pieces { ip saddr . ip id }":               `want "timeout"`,
		"update @pieces { ip saddr . ip id timeout never }": `"never" is no time`,
		"update @pieces { ip saddr . ip id timeout 0s }":    `"0s" is no time`,
		"delete @pieces ip saddr":                           `want "{"`,
	} {
		tbl := learning()
		tbl.Sets = append(tbl.Sets, state.Set{Name: "plain", Key: "ipv4_addr"})
		tbl.Chains[0].Rules = ruled(text)
		if _, err := lang.Text(tbl); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, s := range []state.Set{
		{Name: "s", Key: "ipv4_addr", DynamicSize: -1}, {Name: "s", Key: "ipv4_addr", DynamicSize: 1, Interval: true},
	} {
		if _, err := lang.Text(state.Table{Family: "inet", Name: "weft", Sets: []state.Set{s}}); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

func ruled(lines ...string) []state.NftRule { return rules(strings.Join(lines, "\n")) }
