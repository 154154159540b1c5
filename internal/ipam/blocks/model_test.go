// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/cluster/store"
)

// modelCluster is a small cluster whose nodes lose their way to the store, are killed at any step, and continue.
type modelCluster struct {
	t       *rapid.T
	dir     store.Objects
	nodes   []*node
	now     time.Time
	confs   []string
	next    int
	steps   []int // steps left until a node is killed, -1 for never
	crashes int
	ops     int
}

// TestNoAddressTwice: whatever happens, no two recorded attachments have one address, and no two blocks overlap.
func TestNoAddressTwice(t *testing.T) {
	crashes, ops := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		s, path := cluster(t, map[string]string{
			"ippool.yaml": "apiVersion: whereabouts.cni.cncf.io/v1alpha1\nkind: IPPool\nmetadata: {name: 10.0.0.0-26, namespace: kube-system}\n" +
				"spec: {range: 10.0.0.0/26, allocations: {\"9\": {id: old, podref: default/old, ifname: net1}}}\n",
		})
		m := &modelCluster{t: rt, dir: s.Objects(), now: time.Unix(1e9, 0), confs: []string{
			rangeConf1("10.0.0.0/26"), rangeConf1("10.0.0.0/28"), rangeConf1("10.0.0.4-10.0.0.20/24"),
			rangeConf1("fd00::/124", `"exclude":["fd00::8/126"]`),
		}}
		for i, name := range []string{"a", "b", "c"} {
			m.steps = append(m.steps, -1)
			m.nodes = append(m.nodes, join(t, path, name, func(c *Config) {
				c.Now = func() time.Time { return m.now }
				c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- m.now; return ch }
				c.Failpoint = func(string) error { return m.step(i) }
			}))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": m.add, "add again": m.add, "certain": m.specific, "del": m.del, "tend": m.reconcile, "tend once more": m.reconcile,
			"later": m.later, "cut": m.cut, "late": m.late, "deliver": m.deliver, "kill": m.kill,
			"kill at a step": m.arm, "": m.check,
		})
		crashes, ops = crashes+m.crashes, ops+m.ops
	})
	t.Logf("%d operations, %d kills between two steps", ops, crashes)
}

// step ends a node's operation when its time has come.
func (m *modelCluster) step(i int) error {
	if m.steps[i] < 0 {
		return nil
	}
	if m.steps[i]--; m.steps[i] >= 0 {
		return nil
	}
	m.steps[i] = 0 // nothing of it continues
	return errCrash
}

// after restarts the node if an operation was killed.
func (m *modelCluster) after(i int) {
	m.ops++
	if m.steps[i] != 0 {
		return
	}
	m.steps[i] = -1
	m.crashes++
	m.nodes[i].start()
}

func (m *modelCluster) pick(t *rapid.T) int { return rapid.IntRange(0, len(m.nodes)-1).Draw(t, "node") }

func (m *modelCluster) add(t *rapid.T) {
	i := m.pick(t)
	m.next++
	_, _ = m.nodes[i].add(rapid.SampledFrom(m.confs).Draw(t, "conf"), fmt.Sprint("c", m.next))
	m.after(i)
}

func (m *modelCluster) specific(t *rapid.T) {
	i := m.pick(t)
	m.next++
	a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 62).Draw(t, "address"))})
	_, _ = m.nodes[i].add(m.confs[0], fmt.Sprint("c", m.next), [2]string{"IP", a.String()})
	m.after(i)
}

func (m *modelCluster) del(t *rapid.T) {
	i := m.pick(t)
	n := m.nodes[i]
	var ids []string
	for k := range n.ledger {
		ids = append(ids, k.ContainerID)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(t, "container")
	if rapid.Bool().Draw(t, "killed before the record is gone") {
		_ = n.engine.Allocators()[1].Del(context.Background(), n.req("", key(id), n.ledger[key(id)]...))
		n.start()
	}
	n.del(id)
	m.after(i)
}

func (m *modelCluster) reconcile(t *rapid.T) {
	i := m.pick(t)
	if rapid.Bool().Draw(t, "anew") {
		m.nodes[i].engine.state.synced = false
	}
	for _, p := range m.nodes[i].engine.state.pools { // as after events of a watch
		p.stale, p.noFreeBlock = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	_ = m.nodes[i].engine.reconciler.reconcile(context.Background())
	m.after(i)
}

func (m *modelCluster) later(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 11, 70, 700}).Draw(t, "seconds")) * time.Second)
}

func (m *modelCluster) cut(t *rapid.T) {
	m.nodes[m.pick(t)].line.set(rapid.Bool().Draw(t, "cut"), rapid.Bool().Draw(t, "deaf"))
}

func (m *modelCluster) late(t *rapid.T) { m.nodes[m.pick(t)].line.late = rapid.Bool().Draw(t, "late") }

func (m *modelCluster) deliver(t *rapid.T) { m.nodes[m.pick(t)].line.deliver() }

func (m *modelCluster) kill(t *rapid.T) { m.nodes[m.pick(t)].start() }

func (m *modelCluster) arm(t *rapid.T) { m.steps[m.pick(t)] = rapid.IntRange(1, 12).Draw(t, "steps") }

// check is what must always be.
func (m *modelCluster) check(t *rapid.T) {
	checkOnce(t, m.nodes...)
	for _, n := range m.nodes {
		for k, addrs := range n.ledger {
			if slices.Contains(addrs, netip.MustParseAddr("10.0.0.9")) {
				t.Errorf("container %s has the address that whereabouts gave", k.ContainerID)
			}
		}
	}
	all, err := m.dir.List(context.Background(), store.AddressBlocks())
	if err != nil {
		t.Fatal(err)
	}
	var seen []netip.Prefix
	for _, o := range all {
		b, err := o.AddressBlock()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range seen {
			if p.Overlaps(b.CIDR) {
				t.Errorf("blocks %s and %s overlap", p, b.CIDR)
			}
		}
		seen = append(seen, b.CIDR)
	}
}
