// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// sorted returns a topology whose sets have their elements sorted: in the kernel they have no order.
func sorted(t Topology) Topology {
	t.Node.Host.Tables = slices.Clone(t.Node.Host.Tables)
	for i, table := range t.Node.Host.Tables {
		sets := slices.Clone(table.Sets)
		for j := range sets {
			sets[j].Elements = slices.SortedFunc(slices.Values(sets[j].Elements), func(a, b state.Element) int {
				return slices.Compare(a.Key, b.Key)
			})
		}
		t.Node.Host.Tables[i].Sets = sets
	}
	return t
}

func randomAddr(t *rapid.T) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16, 0, byte(rapid.IntRange(2, 40).Draw(t, "addr"))})
}

func randomCIDR(t *rapid.T) netip.Prefix {
	bits := rapid.SampledFrom([]int{24, 24, 24, 24, 25, 23}).Draw(t, "bits")
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(rapid.IntRange(0, 60).Draw(t, "cidr")), 0}), bits)
}

func randomPublished(t *rapid.T, backend string) *model.Published {
	out := &model.Published{Backend: backend}
	switch rapid.IntRange(0, 11).Draw(t, "published") {
	case 0:
		return nil
	case 1:
		out.Backend = rapid.SampledFrom([]string{"vxlan", "host-gw", "udp", "wireguard", "alloc", "nonsense"}).Draw(t, "back end")
	case 2:
		out.Addrs = []netip.Addr{randomAddr(t)}
	}
	switch out.Backend {
	case "vxlan":
		out.Data = fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:00:%02x"}`, rapid.IntRange(0, 200).Draw(t, "mac"))
	case "wireguard":
		out.Data = wireguardText(byte(rapid.IntRange(0, 200).Draw(t, "key")))
	}
	return out
}

func wireguardText(key byte) string {
	text := base64.StdEncoding.EncodeToString(append(make([]byte, 31), key))
	return fmt.Sprintf(`{"PublicKey":%q,"Port":51820}`, text)
}

// randomPools are pools of the cluster's network, or none.
func randomPools(t *rapid.T, cfg Config) []model.AddressPool {
	if !cfg.Pools {
		return nil
	}
	kinds := []model.EncapsulationKind{"", "none", "vxlan", "ipip"}
	one := func(name, region string) model.AddressPool {
		return model.AddressPool{
			Name: name, AssignmentMode: model.AssignAutomatic, NATOutgoing: rapid.Bool().Draw(t, "nat"),
			Regions:       []model.AddressRegion{{CIDR: netip.MustParsePrefix(region)}},
			Encapsulation: model.Encapsulation{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")},
		}
	}
	return []model.AddressPool{
		one("a", "10.77.0.0/16"), one("b", rapid.SampledFrom([]string{"10.78.0.0/16", "10.244.0.0/16"}).Draw(t, "region")),
	}
}

// randomBlocks returns blocks with one change. Calm ones are of nodes that exist.
func randomBlocks(t *rapid.T, blocks []model.AddressBlock, nodes []model.Node, calm bool) []model.AddressBlock {
	blocks = slices.Clone(blocks)
	owner := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "owner")].Name
	if !calm && rapid.IntRange(0, 9).Draw(t, "strange") == 0 {
		owner = "nobody"
	}
	at := rapid.IntRange(0, max(0, len(blocks)-1)).Draw(t, "block")
	switch kind := rapid.IntRange(0, 5).Draw(t, "block change"); {
	case kind < 3 || len(blocks) == 0:
		bits := rapid.SampledFrom([]int{28, 28, 28, 27, 32}).Draw(t, "block bits")
		third := byte(77)
		if !calm && rapid.Bool().Draw(t, "other pool") {
			third = 78
		}
		b := model.AddressBlock{Pool: "a", Node: owner, CIDR: netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, third, 0, byte(rapid.IntRange(0, 7).Draw(t, "block number") * 32)}), bits)}
		same := func(o model.AddressBlock) bool { return calm && o.CIDR.Overlaps(b.CIDR) || o.CIDR == b.CIDR }
		if !slices.ContainsFunc(blocks, same) {
			blocks = append(blocks, b)
		}
	case kind == 3:
		blocks = slices.Delete(blocks, at, at+1)
	case kind == 4:
		blocks[at].Node = owner
	default: // one of its addresses is lent, or not any more
		b := &blocks[at]
		b.Lent = maps.Clone(b.Lent)
		if a := b.CIDR.Addr().Next(); b.Lent[a] != "" {
			delete(b.Lent, a)
		} else if b.CIDR.Contains(a) {
			b.Lent = map[netip.Addr]string{a: owner + "/claim"}
		}
	}
	slices.SortFunc(blocks, compareBlocks)
	return blocks
}

// randomNode is a node. A calm one most likely contradicts no other.
func randomNode(t *rapid.T, name, backend string, calm bool) model.Node {
	if calm && rapid.IntRange(0, 11).Draw(t, "calm") > 0 {
		var i byte
		_, _ = fmt.Sscanf(name, "n%d", &i)
		shift := byte(rapid.IntRange(0, 1).Draw(t, "shift"))
		n := model.Node{
			Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, 100 + 2*i + shift})},
			PodCIDRs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 110 + 2*i + shift, 0}), 24)},
		}
		if rapid.Bool().Draw(t, "publishes") || backend == "wireguard" {
			n.Published = &model.Published{Backend: backend}
			if backend == "wireguard" {
				n.Published.Data = wireguardText(100 + 2*i + shift)
			}
			if backend == "vxlan" {
				n.Published.Data = fmt.Sprintf(`{"VNI":1,"VtepMAC":"0a:00:00:00:01:%02x"}`, 2*i+shift)
			}
		}
		return n
	}
	n := model.Node{
		Name: name, Addrs: []netip.Addr{randomAddr(t)}, PodCIDRs: []netip.Prefix{randomCIDR(t)},
		Published: randomPublished(t, backend),
	}
	switch rapid.IntRange(0, 19).Draw(t, "kind") {
	case 0:
		n.PodCIDRs = nil
	case 1:
		n.PodCIDRs = append(n.PodCIDRs, randomCIDR(t))
	case 2:
		n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix("fd00:10:244::/64"))
	case 3:
		n.Addrs = append(n.Addrs, randomAddr(t))
	case 4:
		n.Addrs = nil
	case 5:
		n.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}
	case 6:
		n.PodCIDRs = []netip.Prefix{netip.PrefixFrom(n.Addrs[0], 24)}
	}
	return n
}

// TestAdvanceEqualsPlan: after any sequence of changes of nodes and blocks, with every back end, an advanced plan is the
// whole one. Of a plan that contradicts nothing each change plans the changed nodes only.
func TestAdvanceEqualsPlan(t *testing.T) {
	for _, backend := range []string{"", "vxlan", "ipip", "udp", "wireguard", "alloc"} {
		for _, pools := range []bool{false, true} {
			t.Run(fmt.Sprintf("backend=%s,pools=%v", backend, pools), func(t *testing.T) {
				advanced := 0
				rapid.Check(t, func(t *rapid.T) { advanced += advanceRandomly(t, Config{Backend: backend, Pools: pools}) })
				if advanced == 0 && backend != "alloc" {
					t.Error("no plan was advanced")
				}
				t.Logf("%d plans were advanced", advanced)
			})
		}
	}
}

// advanceRandomly compares advanced plans with whole ones after a random sequence of changes, and returns how many
// there were.
func advanceRandomly(t *rapid.T, cfg Config) (advanced int) {
	cfg.WireGuard.KeyFile = "/key"
	all := randomPools(t, cfg)
	if rapid.Bool().Draw(t, "masquerade") {
		cfg.Masquerade = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/17")}
	}
	if rapid.IntRange(0, 3).Draw(t, "keep") == 0 {
		cfg.NoMasquerade = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
	}
	if rapid.IntRange(0, 3).Draw(t, "networks") == 0 {
		cfg.Networks = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	}
	cfg.Blackhole = rapid.Bool().Draw(t, "blackhole")
	cfg.VXLAN.DirectRouting = rapid.Bool().Draw(t, "direct")
	if rapid.Bool().Draw(t, "seed") {
		cfg.VTEPSeed = "seed"
	}
	backend := cfg.Backend
	if backend == "" {
		backend = "host-gw"
	}
	self := model.Node{
		Name: "n20", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.1")},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.100.0/24")},
	}
	answers := state.Answers{
		state.Query{Space: state.Host, LinkOf: self.Addrs[0]}: {
			Found: true, Link: state.Link{Name: "eth0", MTU: 1500},
			Addrs: []state.Addr{{Prefix: netip.MustParsePrefix("172.16.0.1/24")}},
		},
	}
	nodes, calm := []model.Node{self}, rapid.IntRange(0, 3).Draw(t, "calm") > 0
	var previous Previous
	var blocks []model.AddressBlock
	for range rapid.IntRange(1, 25).Draw(t, "steps") {
		nodes = slices.Clone(nodes)
		var others []int
		for i, n := range nodes {
			if n.Name != self.Name {
				others = append(others, i)
			}
		}
		changed := 1
		kind := rapid.IntRange(0, 9).Draw(t, "change")
		if cfg.Pools && rapid.Bool().Draw(t, "of blocks") {
			kind, changed = -1, 4 // its nodes before and after, and its borrower's
		}
		if len(others) < 3 {
			kind = 0
		}
		switch {
		case kind < 0:
			blocks = randomBlocks(t, blocks, nodes, calm)
		case kind < 4:
			name := fmt.Sprintf("n%02d", rapid.IntRange(0, 40).Draw(t, "name"))
			i := slices.IndexFunc(nodes, func(n model.Node) bool { return n.Name == name })
			switch {
			case name == self.Name:
				changed = 0
			case i < 0:
				nodes = append(nodes, randomNode(t, name, backend, calm))
			default:
				nodes[i] = randomNode(t, name, backend, calm)
			}
		case kind < 6:
			i := rapid.SampledFrom(others).Draw(t, "leaves")
			if calm {
				blocks = slices.DeleteFunc(slices.Clone(blocks), func(b model.AddressBlock) bool { return b.Node == nodes[i].Name })
				changed = maxAdvance // those that had borrowed addresses
			}
			nodes = slices.Delete(nodes, i, i+1)
		case kind < 8: // they exchange something
			changed = 2
			i, j := rapid.SampledFrom(others).Draw(t, "one"), rapid.SampledFrom(others).Draw(t, "other")
			if rapid.Bool().Draw(t, "prefixes") {
				nodes[i].PodCIDRs, nodes[j].PodCIDRs = nodes[j].PodCIDRs, nodes[i].PodCIDRs
			} else {
				nodes[i].Addrs, nodes[j].Addrs = nodes[j].Addrs, nodes[i].Addrs
			}
		case kind < 9 && !calm:
			nodes[rapid.SampledFrom(others).Draw(t, "one")].Published = randomPublished(t, backend)
		default: // one takes the other's place, at once
			i, j := rapid.SampledFrom(others).Draw(t, "one"), rapid.SampledFrom(others).Draw(t, "other")
			if i != j {
				changed = 2
				nodes[i].PodCIDRs, nodes[i].Addrs = nodes[j].PodCIDRs, nodes[j].Addrs
				nodes = slices.Delete(nodes, j, j+1)
			}
		}
		slices.SortFunc(nodes, func(a, b model.Node) int { return strings.Compare(a.Name, b.Name) })
		c := &model.Cluster{Self: self.Name, Nodes: slices.Clone(nodes), Pools: all, Blocks: blocks}
		want, err := Plan(c, cfg, answers)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := Topology{}, false
		whole := rapid.IntRange(0, 5).Draw(t, "whole pass") == 0
		if queries, simple := previous.Queries(c, cfg); simple && !whole {
			if !reflect.DeepEqual(queries, Observe(c, cfg)) {
				t.Fatalf("queries %+v, want %+v", queries, Observe(c, cfg))
			}
			var planned int
			if got, planned, ok = previous.Advance(c, cfg, answers); ok && planned > changed {
				t.Fatalf("%d planned, %d changed", planned, changed)
			}
		}
		if ok {
			advanced++
		} else {
			if got, err = previous.Plan(c, cfg, answers); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "again") == 0 { // which may keep what it knows of these inputs
			if got, err = previous.Plan(c, cfg, answers); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := sorted(got.Whole()), sorted(want); !reflect.DeepEqual(got, want) {
			t.Fatalf("advanced %v:\n%s\n%+v\nwant\n%s\n%+v", ok, got.Text(), got.Node.Host.Tables, want.Text(), want.Node.Host.Tables)
		}
	}
	return advanced
}
