// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/nft"
	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// TestKernelTakesTap: a kernel takes the table of a macvtap and holds what was written; what it changes in one
// transaction, too.
func TestKernelTakesTap(t *testing.T) {
	nettest.Need(t, "macvtap")
	ns := nettest.NS(t, "n")
	nettest.Run(t, ns, "ip", "link", "add", "lower", "type", "veth", "peer", "name", "wire")
	nettest.Run(t, ns, "ip", "link", "add", "link", "lower", "name", "net1", "type", "macvtap", "mode", "bridge")
	c, err := nft.Dial(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x := worldOf(t, "testdata/tap.yaml")
	same := func() {
		t.Helper()
		var want []state.Table
		for _, table := range x.Tables() {
			want = append(want, table.Table)
		}
		have, err := c.ReadAll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if d := lang.Diff(want, have); len(d) > 0 || len(want) != len(have) {
			t.Fatalf("the kernel differs: %v", d)
		}
	}
	for _, table := range x.Tables() {
		if err := c.Apply(ctx, []state.Table{table.Table}); err != nil {
			t.Fatal(err)
		}
	}
	same()
	x.Changes()
	p := model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindMultiNetworkPolicy, Namespace: "a", Name: "more"},
		Networks:  []string{"a/lan"}, Subject: model.PodPeer{Namespace: "a"},
	}
	p.Egress = model.PolicyDirection{
		On: true, Rules: []model.PolicyRule{{Action: model.PolicyAccept, AnyPeer: true, AnyPort: true}},
	}
	x.SetPolicy(p)
	for _, change := range x.Changes() {
		if change.Point.Tap != "net1" || change.Made {
			t.Errorf("changes at %+v", change.Point)
		}
		if err := c.Change(ctx, []state.TableChange{change.TableChange}); err != nil {
			t.Fatal(err)
		}
	}
	same()
}

// The elements of a tap's flow sets are parsed, for all protocols.
func TestFlowSets(t *testing.T) {
	elements := map[string]string{}
	for _, m := range policy.FlowSets() {
		for _, key := range [][]string{
			{"tcp", "10.0.0.1", "4000", "10.0.0.2", "80"},
			{"icmp", "fd00::1", "7", "fd00::2", "7"},
			{"gre", "10.0.0.1", "10.0.0.2"},
		} {
			if f, ok := m.Flow(state.Element{Key: key}); !ok || f.Src.String() != key[1] ||
				f.Dst.String()[:len(key[1])-1] != key[1][:len(key[1])-1] || f.Src == f.Dst {
				t.Errorf("%s: %v is %+v, %t", m.Name, key, f, ok)
			} else if f.Protocol != "" && (f.SrcPort != 4000 || f.DstPort != 80) {
				t.Errorf("%v is %+v", key, f)
			}
		}
		elements[m.Name] = m.Key
	}
	if len(elements) != 12 {
		t.Errorf("remembered in %v", elements)
	}
	for _, bad := range [][]string{
		nil, {"tcp", "x", "1", "10.0.0.2", "2"}, {"tcp", "10.0.0.1", "99999", "10.0.0.2", "2"},
	} {
		if f, ok := (policy.FlowSet{}).Flow(state.Element{Key: bad}); ok {
			t.Errorf("%v is %+v", bad, f)
		}
	}
}
