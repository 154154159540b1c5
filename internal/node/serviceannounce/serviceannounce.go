// SPDX-License-Identifier: Apache-2.0

// Package serviceannounce makes one node of the cluster answer ARP requests and neighbor solicitations for each address
// of a load balancer that is of a pool of weft's, where no BGP announces it.
//
// Each agent elects the node by itself, from what all agents know: the nodes that are ready, and the Service's endpoints.
// If a node is added or lost, the addresses of other nodes stay where they are.
package serviceannounce

import (
	"context"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/serviceips"
	"github.com/weft-net/weft/internal/kernel/responder"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	// settle is the pause after a change, which rarely comes alone; retry that after a watch that ended.
	settle, retry = 100 * time.Millisecond, 2 * time.Second
	// check is the period after which links are compared with what they were.
	check = 5 * time.Second
	// repeats is how often a node announces an address that it has taken over, a second apart: a frame may be lost.
	repeats, pause = 3, time.Second
	// excluded is the label of nodes that take no part.
	excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// Config configures an Announcer.
type Config struct {
	Node    string
	Objects store.Objects
	Facts   *facts.Facts
	// Topology returns the mesh that is in force, nil before the first pass.
	Topology func() *mesh.Topology
	Log      *slog.Logger
	After    func(time.Duration) <-chan time.Time
}

// Announcer is the announcement of addresses on this node.
type Announcer struct {
	cfg      Config
	synced   bool
	services map[store.Key]serviceips.Service
	slices   map[store.Key]endpoints
	// links are the responders by link, held the addresses by link.
	links map[string]*responder.Responder
	held  map[string]map[netip.Addr]bool
	// mine are the addresses of this node; nil: something has changed since they were elected.
	mine map[netip.Addr]bool
	// fresh are the addresses that are still announced, by how often.
	fresh map[netip.Addr]int
	// problem is the last error that was logged.
	problem string
}

// endpoints are the nodes with ready endpoints of a part of a Service's endpoints.
type endpoints struct {
	service store.Key
	nodes   map[string]bool
}

// New returns an Announcer.
func New(cfg Config) *Announcer {
	cfg.Log = cfg.Log.With("component", "services")
	return &Announcer{
		cfg: cfg, services: map[store.Key]serviceips.Service{}, slices: map[store.Key]endpoints{},
		links: map[string]*responder.Responder{}, held: map[string]map[netip.Addr]bool{}, fresh: map[netip.Addr]int{},
	}
}

// Run announces until ctx ends.
func (a *Announcer) Run(ctx context.Context) error {
	defer func() {
		for _, r := range a.links {
			r.Close()
		}
	}()
	changed, unsubscribe := a.cfg.Facts.Subscribe()
	defer unsubscribe()
	events := make(chan store.Event)
	watched := false
	var due, again <-chan time.Time
	soon := func() {
		if due == nil {
			due = a.cfg.After(settle)
		}
	}
	soon() // what is known already
	tick := a.cfg.After(check)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			a.put(e)
			soon()
			continue
		case <-changed:
			soon()
			continue
		case <-due:
			due, a.mine = nil, nil
		case <-again:
			again = nil
			a.announce()
		case <-tick:
			tick = a.cfg.After(check)
			a.dropStale()
		}
		pools := a.pools()
		if !watched && len(pools) > 0 {
			watched = true
			go a.watch(ctx, events)
		}
		a.apply(pools)
		if len(a.fresh) > 0 && again == nil {
			again = a.cfg.After(pause)
		}
	}
}

// pools returns the pools for Services.
func (a *Announcer) pools() []model.AddressPool {
	cluster := a.cfg.Facts.Cluster()
	if cluster == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cluster.Pools), func(p model.AddressPool) bool { return !p.ForServices() })
}

// watch sends the events of Services and their endpoints until ctx ends.
func (a *Announcer) watch(ctx context.Context, to chan<- store.Event) {
	for logged := false; ctx.Err() == nil; logged = true {
		events, err := a.cfg.Objects.Watch(ctx, store.Services(), store.EndpointSlices())
		if err == nil {
			for e := range events {
				select {
				case to <- e:
				case <-ctx.Done():
				}
			}
		} else if !logged {
			a.cfg.Log.Warn("Services cannot be watched: their addresses are not announced by this node; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-a.cfg.After(retry):
		}
	}
}

// put applies an event. Of an object that cannot be read the last version stays.
func (a *Announcer) put(e store.Event) {
	key := e.Object.Key
	switch {
	case e.Type == store.Synced:
		a.synced = true
	case e.Type == store.Faulty:
	case e.Type == store.Deleted:
		delete(a.services, key)
		delete(a.slices, key)
	case key.Of(store.EndpointSlices()):
		if service, nodes, ok := store.ReadyNodes(e.Object); ok {
			a.slices[key] = endpoints{service, nodes}
		}
	case serviceips.Concerns(e.Object):
		a.services[key] = serviceips.Read(e.Object, serviceips.AllServices, true)
	default:
		delete(a.services, key)
	}
}

// elected returns the addresses of this node.
func (a *Announcer) elected(pools []model.AddressPool) map[netip.Addr]bool {
	local := map[store.Key]map[string]bool{}
	for _, s := range a.slices {
		if local[s.service] == nil {
			local[s.service] = map[string]bool{}
		}
		maps.Copy(local[s.service], s.nodes)
	}
	var ready []string
	for _, n := range a.cfg.Facts.Cluster().Nodes {
		if _, out := n.Labels[excluded]; !out && !n.NotReady {
			ready = append(ready, n.Name)
		}
	}
	out := map[netip.Addr]bool{}
	holders := serviceips.Holders(pools, slices.Collect(maps.Values(a.services)))
	for key, s := range a.services {
		for _, addr := range s.Addrs {
			if holders[addr] != s.Name {
				continue
			}
			may := ready
			if s.Local {
				may = slices.DeleteFunc(slices.Clone(ready), func(n string) bool { return !local[key][n] })
			}
			if Elect(addr, may) == a.cfg.Node {
				out[addr] = true
			}
		}
	}
	return out
}

// Elect returns the node that announces an address, empty without nodes. If nodes are added or removed, only the addresses
// that move to or from these have another one (rendezvous hashing).
func Elect(addr netip.Addr, nodes []string) (best string) {
	var most uint64
	for _, n := range nodes {
		h := fnv.New64a()
		_, _ = h.Write([]byte(n + " " + addr.String()))
		// The last bytes of a text change few of the high bits of FNV: they are mixed in (splitmix64).
		x := h.Sum64()
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
		if best == "" || x > most || x == most && n < best {
			best, most = n, x
		}
	}
	return best
}

// apply makes the responders answer for the addresses of this node.
func (a *Announcer) apply(pools []model.AddressPool) {
	topology := a.cfg.Topology()
	if !a.synced || topology == nil || a.cfg.Facts.Cluster() == nil {
		return
	}
	want := map[string]map[netip.Addr]bool{}
	if a.mine == nil {
		a.mine = a.elected(pools)
	}
	for addr := range a.mine {
		if link := linkFor(topology.Underlay, addr); link != "" {
			if want[link] == nil {
				want[link] = map[netip.Addr]bool{}
			}
			want[link][addr] = true
		}
	}
	problem := ""
	for link, r := range a.links {
		if len(want[link]) == 0 {
			a.cfg.Log.Info("addresses of Services are not announced any more", "link", link, "addresses", slices.Collect(maps.Keys(a.held[link])))
			r.Close()
			delete(a.links, link)
			delete(a.held, link)
		}
	}
	for link, addrs := range want {
		if maps.Equal(addrs, a.held[link]) {
			continue
		}
		if err := a.set(link, addrs); err != nil {
			problem = err.Error()
		}
	}
	if problem != a.problem && problem != "" {
		a.cfg.Log.Error("addresses of Services cannot be announced; it is tried again", "err", problem)
	}
	a.problem = problem
}

// set sets the addresses of a link.
func (a *Announcer) set(link string, addrs map[netip.Addr]bool) error {
	r := a.links[link]
	if r == nil {
		var err error
		if r, err = responder.Open(link); err != nil {
			return err
		}
		a.links[link] = r
	}
	if err := r.Set(addrs); err != nil {
		return err
	}
	a.cfg.Log.Info("addresses of Services are announced", "link", link, "addresses", slices.SortedFunc(maps.Keys(addrs), netip.Addr.Compare))
	var gained []netip.Addr
	for addr := range addrs {
		if !a.held[link][addr] {
			gained = append(gained, addr)
			a.fresh[addr] = repeats
		}
	}
	a.held[link] = addrs
	return r.Announce(gained)
}

// announce announces the addresses again that were taken over.
func (a *Announcer) announce() {
	for link, r := range a.links {
		var again []netip.Addr
		for addr := range a.held[link] {
			if a.fresh[addr] > 0 {
				again = append(again, addr)
			}
		}
		_ = r.Announce(again) // the first time has reported the error
	}
	for addr, left := range a.fresh {
		if a.fresh[addr] = left - 1; left <= 1 {
			delete(a.fresh, addr)
		}
	}
}

// dropStale closes the responders of links that are other ones by now.
func (a *Announcer) dropStale() {
	for link, r := range a.links {
		if r.Stale() {
			r.Close()
			delete(a.links, link)
			delete(a.held, link)
		}
	}
}

// linkFor returns the link on which an address is announced: the one with its subnet, else the node's own of its family.
func linkFor(all []mesh.Underlay, addr netip.Addr) (link string) {
	for _, u := range all {
		switch {
		case u.IsNeighbor(addr):
			return u.Link
		case link == "" && u.Address.Is4() == addr.Is4():
			link = u.Link
		}
	}
	return link
}
