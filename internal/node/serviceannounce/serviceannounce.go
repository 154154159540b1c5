// SPDX-License-Identifier: Apache-2.0

// Package serviceannounce makes one node of the cluster answer ARP requests and neighbor solicitations for each address
// of a load balancer that is of a pool of weft's, where no BGP announces it.
//
// Each agent elects the node by itself, from what all agents know: the nodes that are ready, and the Service's endpoints.
// If a node is added or lost, the addresses of other nodes stay where they are.
//
// A node that is cut off from the datastore does not learn that another one has taken its addresses over. It hears that one
// announce them, and answers for them no more until the datastore reports the node ready again. It does not stop
// before: while no node reaches the datastore, no other one would answer.
package serviceannounce

import (
	"context"
	"errors"
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
	// check is the period after which links are compared with what they were, and addresses that another node announces with
	// the datastore, which has the time to answer.
	check, askLimit = 5 * time.Second, 4 * time.Second
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
	pools    map[store.Key]model.AddressPool // those for Services
	services map[store.Key]serviceips.Service
	slices   map[store.Key]endpoints
	// links are the responders by link, held the addresses by link.
	links map[string]*responder.Responder
	held  map[string]map[netip.Addr]bool
	// mine are the addresses of this node; nil: something has changed since they were elected.
	mine map[netip.Addr]bool
	// fresh are the addresses that are still announced, by how often.
	fresh map[netip.Addr]int
	// claims are addresses of this node that another one announces; contested are those about which the datastore has not been
	// asked yet, yielded those for which this node does not answer until the datastore reports it ready.
	claims             chan netip.Addr
	contested, yielded map[netip.Addr]bool
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
		cfg: cfg, pools: map[store.Key]model.AddressPool{}, services: map[store.Key]serviceips.Service{}, slices: map[store.Key]endpoints{},
		links: map[string]*responder.Responder{}, held: map[string]map[netip.Addr]bool{}, fresh: map[netip.Addr]int{},
		claims: make(chan netip.Addr, 64), contested: map[netip.Addr]bool{}, yielded: map[netip.Addr]bool{},
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
	poolEvents, events := make(chan store.Event), make(chan store.Event)
	// The facts have pools only if pods get addresses of them.
	go a.watch(ctx, poolEvents, store.AddressPools())
	ready := make(chan error)
	watched, asking := false, false
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
		case e := <-poolEvents:
			a.putPool(e)
			soon()
			continue
		case e := <-events:
			a.put(e)
			soon()
			continue
		case <-changed:
			soon()
			continue
		case addr := <-a.claims:
			a.contested[addr] = true
			continue
		case err := <-ready:
			asking = false
			a.decide(err)
		case <-due:
			due, a.mine = nil, nil
		case <-again:
			again = nil
			a.announce()
		case <-tick:
			tick = a.cfg.After(check)
			a.dropStale()
			if !asking && len(a.contested)+len(a.yielded) > 0 {
				asking = true
				go a.ask(ctx, ready)
			}
		}
		if !watched && len(a.pools) > 0 {
			watched = true
			go a.watch(ctx, events, store.Services(), store.EndpointSlices())
		}
		a.apply()
		if len(a.fresh) > 0 && again == nil {
			again = a.cfg.After(pause)
		}
	}
}

// ask asks the datastore for this node, and sends why the node is not known to be ready, nil if it is.
func (a *Announcer) ask(ctx context.Context, to chan<- error) {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	o, err := a.cfg.Objects.Get(limited, store.Nodes(), store.NodeKey(a.cfg.Node))
	var n model.Node
	if err == nil {
		n, err = o.Node()
	}
	if err == nil && n.NotReady {
		err = errors.New("the node is not ready")
	}
	select {
	case to <- err:
	case <-ctx.Done():
	}
}

// decide decides about addresses that another node announces. If this one is ready, its own election decides, and it
// announces again what it still has.
func (a *Announcer) decide(err error) {
	if err != nil {
		for addr := range a.contested {
			if !a.yielded[addr] {
				a.cfg.Log.Warn("another node announces an address of a Service: this one answers for it no more until the datastore reports "+
					"it ready", "address", addr, "err", err)
			}
			a.yielded[addr] = true
		}
	} else {
		for addr := range a.contested {
			a.fresh[addr] = repeats
		}
		clear(a.yielded)
		a.mine = nil
	}
	clear(a.contested)
}

// watch sends the events of kinds until ctx ends.
func (a *Announcer) watch(ctx context.Context, to chan<- store.Event, kinds ...store.Kind) {
	for logged := false; ctx.Err() == nil; logged = true {
		events, err := a.cfg.Objects.Watch(ctx, kinds...)
		if err == nil {
			for e := range events {
				select {
				case to <- e:
				case <-ctx.Done():
				}
			}
		} else if !logged {
			a.cfg.Log.Warn("addresses of Services are not announced by this node, because objects cannot be watched; it is tried again",
				"resource", kinds[0].Resource, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-a.cfg.After(retry):
		}
	}
}

// putPool applies an event of a pool. Of one that cannot be read the last version stays.
func (a *Announcer) putPool(e store.Event) {
	switch e.Type {
	case store.Synced, store.Faulty:
	case store.Deleted:
		delete(a.pools, e.Object.Key)
	default:
		p, err := e.Object.AddressPool()
		if err != nil {
			return
		}
		if delete(a.pools, e.Object.Key); p.ForServices() {
			a.pools[e.Object.Key] = p
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
func (a *Announcer) elected() map[netip.Addr]bool {
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
	holders := serviceips.Holders(slices.Collect(maps.Values(a.pools)), slices.Collect(maps.Values(a.services)))
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
func (a *Announcer) apply() {
	topology := a.cfg.Topology()
	if !a.synced || topology == nil || a.cfg.Facts.Cluster() == nil {
		return
	}
	want := map[string]map[netip.Addr]bool{}
	if a.mine == nil {
		a.mine = a.elected()
	}
	for addr := range a.mine {
		if a.yielded[addr] {
			continue
		}
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
		if r, err = responder.Open(link, func(addr netip.Addr) {
			select {
			case a.claims <- addr:
			default: // it is announced several times
			}
		}); err != nil {
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
