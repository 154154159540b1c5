// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// history is a long life of a small cluster: pods come and go, nodes lose the store, are killed at any step, die and
// are reinstalled, clocks jump, pools change. Every answer is compared with all that was answered before.
type history struct {
	t     *testing.T
	rand  *rand.Rand
	path  string
	dir   *heap
	lines map[string]*line
	names []string
	nodes map[string]*node
	now   time.Time
	// skew is how far a node's clock is off.
	skew  map[string]time.Duration
	steps map[string]int
	// has maps an address to its owner, released when it was released last on which node and not flushed there since.
	has      map[netip.Addr]string
	unclean  map[string]map[netip.Addr]bool
	next     int
	done     map[string]int // by kind of operation
	kills    int
	disabled bool
	vms      []*historyVM
	overlaid int // of the overlappingPools, how many another pool has as well by now
	moved    int // of these, how many have lost their addresses to that one
}

// overlappingPools are pools whose addresses an older pool gets as well, one after the other, while they are in use.
const overlappingPools = 6

func newHistory(t *testing.T, seed uint64) *history {
	files := []string{
		poolYAML("a", "10.1.0.0/24", 28, "  reserved: [{address: 10.1.0.77, for: a printer}]\n"),
		poolYAML("b", "10.2.0.0/27", 30, "  nodeSelector: all()\n"),
		poolYAML("c", "fd00:3::/120", 124),
		poolYAML("d", "10.1.0.128/25", 28), // overlaps with a: nothing may come of it
	}
	for i := range overlappingPools {
		files = append(files, poolYAML(fmt.Sprint("e", i), fmt.Sprintf("10.5.%d.0/27", i), 29))
	}
	h := &history{
		t: t, rand: rand.New(rand.NewPCG(seed, 7)), names: []string{"n1", "n2", "n3", "n4"}, nodes: map[string]*node{},
		now:  time.Unix(1e9, 0),
		skew: map[string]time.Duration{}, steps: map[string]int{}, has: map[netip.Addr]string{},
		unclean: map[string]map[netip.Addr]bool{}, done: map[string]int{},
		lines: map[string]*line{},
	}
	for _, name := range h.names {
		files = append(files, nodeYAML(name))
	}
	h.dir = newHeap(t, files...)
	_, h.path = cluster(t, nil)
	for _, name := range h.names {
		h.join(name)
	}
	return h
}

func nodeYAML(name string) string {
	return "apiVersion: v1\nkind: Node\nmetadata: {name: " + name + "}\n"
}

func (h *history) join(name string) {
	h.steps[name], h.unclean[name] = -1, map[netip.Addr]bool{}
	h.nodes[name] = join(h.t, h.path, name, func(c *Config) {
		h.lines[name] = c.Objects.(*line)
		h.lines[name].Objects = h.dir
		c.MachineID = fmt.Sprint(name, h.next)
		c.Now = func() time.Time { return h.now.Add(h.skew[name]) }
		c.After = func(time.Duration) <-chan time.Time { ch := make(chan time.Time, 1); ch <- h.now; return ch }
		c.Failpoint = func(string) error { return h.step(name) }
		c.Flush = func(_ context.Context, addrs []netip.Addr) error {
			for _, a := range addrs {
				delete(h.unclean[name], a)
			}
			return nil
		}
	})
}

func (h *history) step(name string) error {
	if h.steps[name] < 0 {
		return nil
	}
	if h.steps[name]--; h.steps[name] >= 0 {
		return nil
	}
	h.steps[name] = 0
	return errCrash
}

// act does one operation.
func (h *history) act() {
	name := h.names[h.rand.IntN(len(h.names))]
	n := h.nodes[name]
	what := ""
	switch p := h.rand.IntN(1000); {
	case p < 400:
		what = h.add(n)
	case p < 850:
		what = h.del(n)
	case p < 920:
		what = "tend"
		h.reconcile(n)
	case p < 945:
		what = "later"
		h.now = h.now.Add(time.Duration([]int{1, 5, 11, 70, 700}[h.rand.IntN(5)]) * time.Second)
	case p < 955:
		what = "clock jumps"
		h.skew[name] = time.Duration(h.rand.IntN(7200)-3600) * time.Second
	case p < 970:
		what = "store away"
		n.line.set(h.rand.IntN(3) == 0, h.rand.IntN(4) == 0)
		n.line.late = h.rand.IntN(6) == 0
	case p < 978:
		what = "late requests"
		n.line.deliver()
	case p < 984:
		what = "killed"
		h.kill(n)
	case p < 996:
		what = "to be killed at a step"
		h.steps[name] = 1 + h.rand.IntN(12)
	case p < 999:
		what = "pool changes"
		h.pool()
	default:
		what = "node made anew"
		h.reinstall(name)
	}
	h.done[what]++
	if h.steps[name] == 0 {
		h.kill(h.nodes[name])
	}
}

func (h *history) kill(n *node) {
	h.steps[n.name] = -1
	h.kills++
	n.start()
}

func (h *history) add(n *node) string {
	if len(h.has) > 330 {
		return h.del(n)
	}
	conf, podRequest := calicoConf(), model.AddressRequest{}
	switch h.rand.IntN(8) {
	case 0, 1:
		conf = calicoConf(`"assign_ipv6":"true"`)
	case 2:
		podRequest.Pools4 = []string{"b", "a"}
	case 3:
		podRequest.Addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(h.rand.IntN(256))})}
	case 4:
		podRequest.Addrs = []netip.Addr{
			netip.AddrFrom4([4]byte{10, 5, byte(h.rand.IntN(overlappingPools)), byte(h.rand.IntN(32))}),
		}
	case 5:
		podRequest.Pools4 = []string{fmt.Sprint("e", h.rand.IntN(overlappingPools)), "b"}
	case 6, 7:
		return h.vmOp(n)
	}
	h.next++
	id := fmt.Sprint("c", h.next)
	if _, err := n.addCluster(conf, id, podRequest); err != nil {
		return "add, refused"
	}
	for _, a := range n.ledger[key(id)] {
		if by, twice := h.has[a]; twice {
			h.t.Fatalf("operation %d: address %s is given to %s of node %s, and %s has it", h.next, a, id, n.name, by)
		}
		if a == netip.MustParseAddr("10.1.0.77") {
			h.t.Fatalf("address %s is reserved", a)
		}
		for name, unclean := range h.unclean {
			if unclean[a] {
				h.t.Fatalf("address %s is given on node %s, and the kernel of node %s still tracks its connections", a,
					n.name, name)
			}
		}
		h.has[a] = n.name + "/" + id
	}
	return "add"
}

func (h *history) del(n *node) string {
	if len(n.ledger) == 0 {
		return "nothing"
	}
	ids := slices.SortedFunc(maps.Keys(n.ledger), func(a, b model.AttachmentKey) int {
		return len(a.ContainerID) - len(b.ContainerID)
	})
	k := ids[h.rand.IntN(len(ids))]
	for _, a := range n.ledger[k] {
		h.unclean[n.name][a] = !strings.HasPrefix(h.has[a], ofVM) // a VM keeps its connections
	}
	h.freed(n.ledger[k])
	if h.rand.IntN(20) == 0 { // killed before the record is gone
		_ = n.engine.Allocators()[2].Del(context.Background(), n.req("", k, n.ledger[k]...))
		n.start()
	}
	n.del(k.ContainerID)
	return "del"
}

// reconcile is what Run does after a full resync.
func (h *history) reconcile(n *node) {
	if h.rand.IntN(3) == 0 {
		n.engine.state.mu.Lock()
		n.engine.state.synced = false
		n.engine.state.mu.Unlock()
	}
	h.reconcileAll(n)
}

func (h *history) reconcileAll(n *node) {
	e := n.engine
	all, err := n.line.List(context.Background(), store.AddressPools())
	e.state.mu.Lock()
	if err == nil {
		e.state.catalog.BeginResync()
		for _, o := range all {
			e.state.handlePoolEventLocked(store.Event{Type: store.Modified, Object: o})
		}
		e.state.catalog.EndResync()
	}
	for _, p := range e.state.pools {
		p.stale, p.noFreeBlock = true, false
		for _, b := range p.order {
			b.stale = true
		}
	}
	e.state.mu.Unlock()
	if all, err := n.line.List(context.Background(), store.AddressBlocks()); err == nil {
		for _, o := range all {
			e.reconciler.handleEvent(store.Event{Type: store.Modified, Object: o})
		}
	}
	_ = e.reconciler.reconcile(context.Background())
}

// pool changes a pool as users do: it is disabled and enabled, and given regions that younger pools have, and that
// these lose later.
func (h *history) pool() {
	if h.moved < h.overlaid && h.rand.IntN(3) == 0 {
		narrow(h.t, h.dir, fmt.Sprint("e", h.moved), fmt.Sprintf("10.5.%d.0/27", h.moved))
		h.moved++
		return
	}
	k := store.AddressPools()
	o, err := h.dir.Get(context.Background(), k, k.Key("", "b"))
	if err != nil {
		h.t.Fatal(err)
	}
	spec, err := o.AddressPool()
	if err != nil {
		h.t.Fatal(err)
	}
	if h.rand.IntN(4) == 0 && h.overlaid < overlappingPools {
		sizes := []int{28, 29, 30}
		spec.Regions = append(spec.Regions, model.AddressRegion{
			CIDR: netip.MustParsePrefix(fmt.Sprintf("10.5.%d.0/27", h.overlaid)), BlockSize: sizes[h.overlaid%len(sizes)],
		})
		h.overlaid++
	} else {
		h.disabled = !h.disabled
	}
	spec.Disabled = h.disabled
	next, err := store.AddressPoolObject(o, spec)
	if err == nil {
		_, err = h.dir.CompareAndSwap(context.Background(), k, o.Version, next)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// reinstall removes a host permanently, with its pods and its state; later another host gets its name.
func (h *history) reinstall(name string) {
	old := h.nodes[name]
	old.line.deliver()
	old.line.set(true, false)
	object := h.dir.objects[store.NodeKey(name)]
	delete(h.dir.objects, object.Key)
	for _, addrs := range old.ledger {
		h.freed(addrs)
	}
	delete(h.unclean, name)
	for range 4 {
		h.now = h.now.Add(10 * time.Minute)
		for _, other := range h.names {
			if other != name {
				h.reconcile(h.nodes[other])
				if h.steps[other] == 0 {
					h.kill(h.nodes[other])
				}
			}
		}
	}
	h.dir.put(object)
	h.next++
	h.join(name)
}

// overlaps looks whether two blocks of one pool overlap, or one is of a pool that allocates nothing. Blocks of two
// pools may, until one of their nodes has seen the other's.
func (h *history) overlaps() {
	all, err := h.dir.List(context.Background(), store.AddressBlocks())
	if err != nil {
		h.t.Fatal(err)
	}
	var seen []model.AddressBlock
	for _, o := range all {
		b, err := o.AddressBlock()
		if err != nil {
			h.t.Fatal(err)
		}
		for _, p := range seen {
			if p.CIDR.Overlaps(b.CIDR) && p.Pool == b.Pool {
				h.t.Fatalf("blocks %s and %s of pool %s overlap", p.CIDR, b.CIDR, p.Pool)
			}
		}
		if b.Pool == "d" {
			h.t.Fatalf("block %s of pool d, which overlaps with an older one", b.CIDR)
		}
		seen = append(seen, b)
	}
}
