// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// eventCase is a cluster of 10,000 peers, and the same one before an event of one node: it joined, or got a block.
type eventCase struct {
	name          string
	cfg           Config
	answers       state.Answers
	after, before *model.Cluster
}

func eventCases() []eventCase {
	var out []eventCase
	for _, backend := range []string{"host-gw", "vxlan", "ipip", "udp", "wireguard"} {
		c := &model.Cluster{Self: "n00000"}
		for i := range 10_001 {
			addr := netip.AddrFrom4([4]byte{172, 16, byte((i + 1) >> 8), byte(i + 1)})
			n := model.Node{
				Name: fmt.Sprintf("n%05d", i), Addrs: []netip.Addr{addr},
				PodCIDRs:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
				Published: &model.Published{Backend: backend, Addrs: []netip.Addr{addr}},
			}
			switch backend {
			case "vxlan":
				n.Published.Data = fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:%02x:%02x"}`, i>>8, i&255)
			case "wireguard":
				key := base64.StdEncoding.EncodeToString(append(make([]byte, 30), byte(i>>8), byte(i)))
				n.Published.Data = fmt.Sprintf(`{"PublicKey":%q,"Port":51820}`, key)
			}
			c.Nodes = append(c.Nodes, n)
		}
		one := eventCase{
			name: backend, cfg: Config{Backend: backend, Masquerade: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			answers: state.Answers{
				state.Query{Space: state.Host, LinkOf: c.Nodes[0].Addrs[0]}: {
					Found: true, Link: state.Link{Name: "eth0", MTU: 1500},
					Addrs: []state.Addr{{Prefix: netip.MustParsePrefix("172.16.0.1/12")}},
				},
			},
			after:  c,
			before: &model.Cluster{Self: c.Self, Nodes: slices.Delete(slices.Clone(c.Nodes), 5000, 5001)},
		}
		out = append(out, one)
		if backend != "host-gw" && backend != "vxlan" {
			continue
		}
		pooled := &model.Cluster{Self: c.Self, Nodes: slices.Clone(c.Nodes), Pools: []model.AddressPool{{
			Name: "p", AssignmentMode: model.AssignAutomatic, NATOutgoing: true,
			Regions: []model.AddressRegion{{CIDR: netip.MustParsePrefix("10.0.0.0/8")}},
		}}}
		for i := range pooled.Nodes {
			n := &pooled.Nodes[i]
			pooled.Blocks = append(pooled.Blocks, model.AddressBlock{Pool: "p", CIDR: n.PodCIDRs[0], Node: n.Name})
			n.PodCIDRs = nil
		}
		before := *pooled
		before.Blocks = slices.Delete(slices.Clone(pooled.Blocks), 5000, 5001)
		one.name, one.cfg, one.after, one.before = backend+" with pools", Config{Backend: backend, Pools: true}, pooled, &before
		out = append(out, one)
	}
	return out
}

// advance makes one event: the node leaves, or joins again.
func (e eventCase) advance(tb testing.TB, v *Previous, i int) {
	now := e.before
	if i%2 == 1 {
		now = e.after
	}
	if _, planned, ok := v.Advance(now, e.cfg, e.answers); !ok || planned != 1 {
		tb.Fatal(e.name, ok, planned)
	}
}

// TestEventPlansOneNode: an event of one node among 10,000 plans this node. What it allocates is copies of lists.
func TestEventPlansOneNode(t *testing.T) {
	for _, e := range eventCases() {
		var v Previous
		top, err := v.Plan(e.after, e.cfg, e.answers)
		if err != nil || len(top.Problems) > 0 {
			t.Fatal(e.name, err, top.Problems)
		}
		const events = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range events {
			e.advance(t, &v, i)
		}
		runtime.ReadMemStats(&after)
		objects, size := (after.Mallocs-before.Mallocs)/events, (after.TotalAlloc-before.TotalAlloc)/events
		t.Logf("%s: %d objects, %d bytes an event", e.name, objects, size)
		most := uint64(512 << 10)
		if e.name == "udp" || e.name == "wireguard" {
			most = 4 << 20 // their tunnels have lists of all peers
		}
		if objects > 100 || size > most {
			t.Errorf("%s: an event allocates %d objects and %d bytes, want at most 100 and %d", e.name, objects, size, most)
		}
	}
}

// TestBare: the plan that is kept has no elements of peers in the guard's sets. Users and the kernel get them.
func TestBare(t *testing.T) {
	for _, e := range eventCases() {
		var v Previous
		whole, err := Plan(e.after, e.cfg, e.answers)
		if err != nil {
			t.Fatal(err)
		}
		bare, err := v.Plan(e.after, e.cfg, e.answers)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range bare.guardSets() {
			senders := strings.HasPrefix(s.Name, "peers") || strings.HasPrefix(s.Name, "sources")
			if senders && len(s.Elements) > 0 {
				t.Errorf("%s: set %s has %d elements", e.name, s.Name, len(s.Elements))
			}
		}
		if got, want := bare.Fragments()[0], whole.Fragments()[0]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the node's fragment differs from that of the whole plan", e.name)
		}
		got, err1 := json.Marshal(bare)
		want, err2 := json.Marshal(whole)
		if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the plan in JSON differs from the whole one: %v %v", e.name, err1, err2)
		}
		per := map[string]int{}
		for _, p := range bare.Peers {
			for _, s := range bare.PeerElements(p) {
				per[s.Name] += len(s.Elements)
			}
		}
		for _, s := range whole.guardSets() {
			if n, senders := per[s.Name]; senders && n != len(s.Elements) {
				t.Errorf("%s: the peers have %d elements of set %s, want %d", e.name, n, s.Name, len(s.Elements))
			}
		}
	}
}

// TestPlanOfSameInputs: a whole pass without a change has the plan in force, not a second one; an advanced plan is planned
// as a whole.
func TestPlanOfSameInputs(t *testing.T) {
	for _, e := range eventCases() {
		var v Previous
		plan := func() Topology {
			now := *e.after // a snapshot shares what has not changed
			top, err := v.Plan(&now, e.cfg, e.answers)
			if err != nil {
				t.Fatal(e.name, err)
			}
			return top
		}
		first, second := plan(), plan()
		if first.Peers[0] != second.Peers[0] || !reflect.DeepEqual(first, second) {
			t.Errorf("%s: the plan of the same inputs is another one", e.name)
		}
		for i := range 2 {
			e.advance(t, &v, i)
		}
		if plan().Peers[0] == first.Peers[0] {
			t.Errorf("%s: an advanced plan is not planned as a whole", e.name)
		}
	}
}

// BenchmarkJoin measures the plan of a node that joins and leaves again, or gets and loses its block, among 10,000 others:
// as a whole, and advanced.
func BenchmarkJoin(b *testing.B) {
	for _, e := range eventCases() {
		b.Run(e.name+"/whole", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if t, err := Plan(e.after, e.cfg, e.answers); err != nil || len(t.Problems) > 0 {
					b.Fatal(err, t.Problems)
				}
			}
		})
		b.Run(e.name+"/advanced", func(b *testing.B) {
			b.ReportAllocs()
			var v Previous
			if _, err := v.Plan(e.after, e.cfg, e.answers); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for i := range b.N {
				e.advance(b, &v, i)
			}
		})
	}
}
