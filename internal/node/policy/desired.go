// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// desired is what the kernel is to hold: policies, and this node's interfaces, of which the index makes tables. What
// the other parts know is under its lock, too.
type desired struct {
	cfg *Config
	log *slog.Logger

	due   notify.Chan   // there may be something to write
	news  notify.Chan   // there is something to publish
	judge notify.Chan   // connections are to be looked at
	peers chan struct{} // closed when the peers are to be followed

	// mu guards all below, and what other parts say it guards. It is not held while the kernel is asked for what may take
	// long: who has it waits for nobody.
	mu    sync.Mutex
	index *policy.Index
	// told: policies and namespaces are known; met: so are the peers.
	told, met, asked bool
	// known are all policies, by what they could be about: namespaces; "" is the whole cluster.
	known map[model.PolicyKey]known
	about map[string]int
	// pods are those of this node.
	pods  map[model.PodRef]identity // by namespace and name
	local map[model.AttachmentKey]*local
	// batch counts how often the index's changes were taken.
	batch   uint64
	waiters map[notify.Chan]bool
	stats   Stats
}

// known is what is remembered of a policy beside what the index knows.
type known struct {
	faults string
}

// identity is how a pod of this node is told from others of its name.
type identity struct{ uid, hash string }

// local is one of this node's endpoints, as the index has it: of a pod that is known it has the UID of the API.
type local struct {
	model.WorkloadEndpoint
	pod  model.PodRef // as the runtime names it
	done bool         // its ADD is
}

func newDesired(cfg *Config, log *slog.Logger) *desired {
	return &desired{
		cfg: cfg, log: log, due: notify.New(), news: notify.New(), judge: notify.New(), peers: make(chan struct{}),
		index: policy.New(policy.Config{Node: cfg.Node, LogGroup: int(cfg.LogGroup)}),
		known: map[model.PolicyKey]known{}, about: map[string]int{}, pods: map[model.PodRef]identity{},
		local: map[model.AttachmentKey]*local{}, waiters: map[notify.Chan]bool{},
	}
}

// ready reports whether what the index says may be written: all is known that it needs. The lock is held.
func (d *desired) ready() bool { return d.told && (d.met || len(d.known) == 0) }

// await waits until something is true, which is asked with the lock held; false when it is not in time.
func (d *desired) await(ctx context.Context, limit time.Duration, is func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if is() {
		return true
	}
	w := notify.New()
	d.waiters[w] = true
	defer delete(d.waiters, w)
	late := d.cfg.After(limit)
	for !is() {
		d.mu.Unlock()
		select {
		case <-w:
			d.mu.Lock()
			continue
		case <-late:
		case <-ctx.Done():
		}
		d.mu.Lock()
		return is()
	}
	return true
}

// changed has those look again who wait for something to be known. The lock is held.
func (d *desired) changed() {
	for w := range d.waiters {
		w.Notify()
	}
}

// ask has the peers be followed: there is a policy, be it one that nobody understands. The lock is held.
func (d *desired) ask() {
	if !d.asked {
		d.asked = true
		close(d.peers)
	}
}

// concerned reports whether a policy could be about pods of a namespace. The lock is held.
func (d *desired) concerned(namespace string) bool { return d.about[namespace] > 0 || d.about[""] > 0 }

// knows reports whether a pod of this node is known. The lock is held.
func (d *desired) knows(ref model.PodRef) bool {
	is, ok := d.pods[model.PodRef{Namespace: ref.Namespace, Name: ref.Name}]
	return ok && (ref.UID == "" || ref.UID == is.uid || ref.UID == is.hash)
}

// setEndpoint gives the index an endpoint that attach names, under the UID that its pod has in the API. The lock is
// held.
func (d *desired) setEndpoint(l *local, is model.WorkloadEndpoint) {
	was := l.WorkloadEndpoint
	l.WorkloadEndpoint, l.pod = is, is.Pod
	l.Node = d.cfg.Node
	if d.knows(l.pod) {
		l.Pod.UID = d.pods[model.PodRef{Namespace: l.Pod.Namespace, Name: l.Pod.Name}].uid
	}
	if was.IfName != "" && was.Key() != l.Key() {
		d.index.DelEndpoint(was.Key())
	}
	if !was.EqualInPolicy(l.WorkloadEndpoint) {
		d.index.SetEndpoint(l.WorkloadEndpoint)
		d.news.Notify()
	}
}

// refreshEndpoint gives the index an endpoint again after more was learned of its pod. The lock is held.
func (d *desired) refreshEndpoint(l *local) {
	is := l.WorkloadEndpoint
	is.Pod = l.pod
	d.setEndpoint(l, is)
}

// isComing is coming, and hasOtherName renamed, for who does not have the lock.
func (d *desired) isComing(p policy.Place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.coming(p)
}

func (d *desired) hasOtherName(p policy.Place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renamed(p)
}

// coming tells whether an interface of the pod is being attached: then its namespace is there, and must not be missed.
// The lock is held.
func (d *desired) coming(p policy.Place) bool {
	for _, l := range d.local {
		if in, ok := placeIn(l); ok && in == p && !l.done {
			return true
		}
	}
	return false
}

// renamed reports whether the pod has another name in the index by now: the namespace has that one's table. The lock is
// held.
func (d *desired) renamed(p policy.Place) bool {
	for _, l := range d.local {
		in, ok := placeIn(l)
		if was := l.Pod; ok && in.Tap == p.Tap && in.Device == p.Device && was.Namespace == p.Pod.Namespace &&
			was.Name == p.Pod.Name && was.UID != p.Pod.UID {
			return true
		}
	}
	return false
}

// tables are those of some places as they should be. The lock is held.
func (d *desired) tables(some ...policy.Place) map[policy.Place]state.Table {
	out := map[policy.Place]state.Table{}
	for _, t := range d.index.Tables(some...) {
		out[t.Place] = t.Table
	}
	return out
}

// podPlaces are those of all interfaces that are judged in their pods' namespaces. The lock is held.
func (d *desired) podPlaces() []policy.Place {
	seen := map[policy.Place]bool{}
	var out []policy.Place
	for _, l := range d.local {
		if p, ok := placeIn(l); ok && !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// inUse reports whether some interface is judged in a place.
func (d *desired) inUse(p policy.Place) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.podPlaces(), p)
}

// hasPorts reports whether some interface is judged at a port. The lock is held.
func (d *desired) hasPorts() bool {
	for _, l := range d.local {
		if l.Point() == model.PointPort {
			return true
		}
	}
	return false
}

// changes are what has changed since they were asked for, in the order in which it is written. The lock is held.
func (d *desired) changes() []policy.Change {
	d.batch++
	return ordered(d.index.Changes())
}

// selecting are the policies that select an interface, for people. The lock is held.
func (d *desired) selecting(ep model.WorkloadEndpoint) string {
	v, err := d.index.Show(ep.Pod)
	if err != nil {
		return "not known which"
	}
	var names []string
	for _, i := range v.Interfaces {
		if i.IfName != ep.IfName {
			continue
		}
		for _, k := range slices.Concat(i.Ingress.Selected, i.Egress.Selected) {
			if !slices.Contains(names, k.String()) {
				names = append(names, k.String())
			}
		}
	}
	return cmp.Or(strings.Join(names, ", "), "its pod is not known")
}

// networkOf is the network of the interface, of those that are judged at a place, that a packet came from or goes to;
// the cluster's where it is not known. The lock is held.
func (d *desired) networkOf(p nflog.Packet, at policy.Place) (network string) {
	for _, l := range d.local {
		_, in := placeIn(l)
		here := !in
		if !at.OnNode() {
			here = in && l.Pod == at.Pod // whichever of its places it was: they tell one group
		}
		if !here || !slices.Contains(l.Addrs, p.From.Addr()) && !slices.Contains(l.Addrs, p.To.Addr()) {
			continue
		}
		if network = l.Network; network == "" {
			break
		}
	}
	return network
}

// parties are who begins or answers connections that are judged in a place.
func (d *desired) parties(p policy.Place) []state.Party {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index.Parties(p)
}

// denied are those of the connections that policy is against.
func (d *desired) denied(p policy.Place, tracked []kernel.Found) []kernel.Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(tracked, func(c kernel.Found) bool { return d.index.Allowed(p, flowOf(c.Connection)) })
}

// barred are those elements of a set that policy is against now, and the flows that they are.
func (d *desired) barred(
	p policy.Place, m policy.Memory, known []state.Element,
) (gone []state.Element, flows []policy.Flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, el := range known {
		if f, ok := m.Flow(el); ok && d.index.Barred(p, f, m.Out) {
			gone, flows = append(gone, el), append(flows, f)
		}
	}
	return gone, flows
}
