// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/netip"
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

// desired is the desired state of the kernel: policies and this node's interfaces, from which the index computes
// tablesLocked. Its lock also guards the state of the other parts.
type desired struct {
	cfg *Config
	log *slog.Logger

	due        notify.Chan   // there may be a change to write
	publishDue notify.Chan   // there is a change to publish
	checkDue   notify.Chan   // connections must be checked
	peers      chan struct{} // closed when the peers must be watched

	// mu guards all fields below, and those of other parts that say so. It is never locked during a kernel request that
	// may take long.
	mu    sync.Mutex
	index *policy.Index
	// policiesSynced: policies and namespaces are synced; peersSynced: peers are. calicoUnsynced counts the API groups of
	// Calico's policies that are not.
	policiesSynced, peersSynced, peersWanted bool
	calicoUnsynced                           int
	// known are all policies; about counts them by the namespace that they could select in; "" is the whole cluster.
	known map[model.PolicyKey]known
	about map[string]int
	// hostFaults are why HostEndpoint objects are not in force, or only in part, by name.
	hostFaults map[string]string
	// pods are those of this node.
	pods  map[model.PodRef]identity // by namespace and name
	local map[model.AttachmentKey]*local
	// batch counts the batches of changes taken from the index.
	batch uint64
	// since is when the first change arrived that may not be written yet; zero: there is none.
	since   time.Time
	waiters map[notify.Chan]bool
	// deniedObservers are called for denied packets.
	deniedObservers map[*func(DeniedPacket)]bool
	stats           Stats
}

// known is the state of a policy outside of the index.
type known struct {
	unsupported string
}

// identity distinguishes a pod of this node from others of the same name.
type identity struct{ uid, hash string }

// local is an endpoint of this node as it is in the index: if its pod is known it has the UID of the API.
type local struct {
	model.WorkloadEndpoint
	pod  model.PodRef // as named by the runtime
	done bool         // its ADD is done
}

func newDesired(cfg *Config, log *slog.Logger) *desired {
	return &desired{
		cfg: cfg, log: log, due: notify.New(), publishDue: notify.New(), checkDue: notify.New(), peers: make(chan struct{}),
		index: policy.New(policy.Config{Node: cfg.Node, LogGroup: int(cfg.LogGroup), Tunnels: cfg.Tunnels}),
		known: map[model.PolicyKey]known{}, about: map[string]int{}, hostFaults: map[string]string{},
		pods:  map[model.PodRef]identity{},
		local: map[model.AttachmentKey]*local{}, waiters: map[notify.Chan]bool{},
	}
}

// readyLocked reports whether the index's changes may be written: all inputs are synced.
func (d *desired) readyLocked() bool {
	return d.policiesSynced && d.calicoUnsynced == 0 && (d.peersSynced || !d.anyLocked())
}

// anyLocked reports whether there is a policy, or a host endpoint, which denies without one.
func (d *desired) anyLocked() bool { return len(d.known) > 0 || d.index.Calico().HasHosts() }

// await waits until a condition, evaluated under the lock, is true; false after the limit.
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

// changedLocked wakes the callers of await.
func (d *desired) changedLocked() {
	for w := range d.waiters {
		w.Notify()
	}
}

// wantPeersLocked requests watching the peers: there is a policy, even if it is not supported.
func (d *desired) wantPeersLocked() {
	if !d.peersWanted {
		d.peersWanted = true
		close(d.peers)
	}
}

// concernedLocked reports whether a policy could select pods of a namespace.
func (d *desired) concernedLocked(namespace string) bool {
	return d.about[namespace] > 0 || d.about[""] > 0
}

// knowsLocked reports whether a pod of this node is known.
func (d *desired) knowsLocked(ref model.PodRef) bool {
	is, ok := d.pods[model.PodRef{Namespace: ref.Namespace, Name: ref.Name}]
	return ok && (ref.UID == "" || ref.UID == is.uid || ref.UID == is.hash)
}

// setEndpointLocked adds attach's endpoint to the index, under the UID that its pod has in the API.
func (d *desired) setEndpointLocked(l *local, is model.WorkloadEndpoint) {
	was := l.WorkloadEndpoint
	l.WorkloadEndpoint, l.pod = is, is.Pod
	l.Node = d.cfg.Node
	if is.Container && !(was.Container && maps.Equal(was.Labels, is.Labels)) {
		d.pods[model.PodRef{Namespace: is.Pod.Namespace, Name: is.Pod.Name}] = identity{uid: is.Pod.UID}
		d.index.SetPod(containerPod(l.WorkloadEndpoint))
		d.checkDue.Notify()
		d.publishDue.Notify()
	}
	if d.knowsLocked(l.pod) {
		l.Pod.UID = d.pods[model.PodRef{Namespace: l.Pod.Namespace, Name: l.Pod.Name}].uid
	}
	if was.IfName != "" && was.Key() != l.Key() {
		d.index.DelEndpoint(was.Key())
	}
	if !was.EqualInPolicy(l.WorkloadEndpoint) {
		d.index.SetEndpoint(l.WorkloadEndpoint)
		d.publishDue.Notify()
	}
}

// containerPod returns a container that has no Pod object as the pod that policies select.
func containerPod(e model.WorkloadEndpoint) model.Pod {
	return model.Pod{Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID, Node: e.Node, Labels: e.Labels}
}

// refreshEndpointLocked updates an endpoint in the index after its pod has changed.
func (d *desired) refreshEndpointLocked(l *local) {
	is := l.WorkloadEndpoint
	is.Pod = l.pod
	d.setEndpointLocked(l, is)
}

// isComing is comingLocked, and hasOtherName renamedLocked, for callers without the lock.
func (d *desired) isComing(p policy.EnforcementPoint) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.comingLocked(p)
}

func (d *desired) hasOtherName(p policy.EnforcementPoint) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renamedLocked(p)
}

// comingLocked reports whether an interface of the pod is being attached: then its namespace exists, and a missing one
// is an error.
func (d *desired) comingLocked(p policy.EnforcementPoint) bool {
	for _, l := range d.local {
		if in, ok := placeIn(l); ok && in == p && !l.done {
			return true
		}
	}
	return false
}

// renamedLocked reports whether the pod has another name in the index now: the namespace has that one's table.
func (d *desired) renamedLocked(p policy.EnforcementPoint) bool {
	for _, l := range d.local {
		in, ok := placeIn(l)
		if was := l.Pod; ok && in.Tap == p.Tap && in.Device == p.Device && was.Namespace == p.Pod.Namespace &&
			was.Name == p.Pod.Name && was.UID != p.Pod.UID {
			return true
		}
	}
	return false
}

// tablesLocked returns the desired tables of some places.
func (d *desired) tablesLocked(some ...policy.EnforcementPoint) map[policy.EnforcementPoint]state.Table {
	out := map[policy.EnforcementPoint]state.Table{}
	for _, t := range d.index.Tables(some...) {
		out[t.Point] = t.Table
	}
	return out
}

// podPlacesLocked returns the places of all interfaces that are enforced in their pods' namespaces.
func (d *desired) podPlacesLocked() []policy.EnforcementPoint {
	seen := map[policy.EnforcementPoint]bool{}
	var out []policy.EnforcementPoint
	for _, l := range d.local {
		if p, ok := placeIn(l); ok && !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// inUse reports whether an interface is enforced in a place.
func (d *desired) inUse(p policy.EnforcementPoint) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.podPlacesLocked(), p)
}

// hasLocked reports whether an interface of this node has an address.
func (d *desired) hasLocked(a netip.Addr) bool {
	for _, l := range d.local {
		if slices.Contains(l.Addrs, a) {
			return true
		}
	}
	return false
}

// hasPortsLocked reports whether an interface is enforced at a bridge port.
func (d *desired) hasPortsLocked() bool {
	for _, l := range d.local {
		if l.Point() == model.PointPort {
			return true
		}
	}
	return false
}

// changesLocked returns the changes since the last call, in the order in which they must be written.
func (d *desired) changesLocked() []policy.Change {
	d.batch++
	return ordered(d.index.Changes())
}

// selectingLocked returns the policies that select an interface, for messages.
func (d *desired) selectingLocked(ep model.WorkloadEndpoint) string {
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

// networkOfLocked returns the network of a packet's interface among those enforced at a place; the cluster's if it is
// not known.
func (d *desired) networkOfLocked(p nflog.Packet, at policy.EnforcementPoint) (network string) {
	for _, l := range d.local {
		_, in := placeIn(l)
		here := !in
		if !at.OnNode() {
			here = in && l.Pod == at.Pod // any of its places: they use one group
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

// conntrackPeers returns the endpoints of connections that are enforced in a place.
func (d *desired) conntrackPeers(p policy.EnforcementPoint) []state.ConntrackPeer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index.ConntrackPeers(p)
}

// evaluated returns the connections that policies deny, and those that they allow.
func (d *desired) evaluated(
	p policy.EnforcementPoint, tracked []kernel.FoundConnection,
) (denied, allowed []kernel.FoundConnection) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range tracked {
		if d.index.Allowed(p, flowOf(c.Connection)) {
			allowed = append(allowed, c)
		} else {
			denied = append(denied, c)
		}
	}
	return denied, allowed
}

// evaluatedElements returns the elements of a set that policies deny now with their flows, and the flows of the others.
func (d *desired) evaluatedElements(
	p policy.EnforcementPoint, m policy.FlowSet, known []state.Element,
) (gone []state.Element, flows, allowed []policy.Flow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, el := range known {
		switch f, ok := m.Flow(el); {
		case !ok:
		case d.index.DeniedAtTap(p, f, m.Out):
			gone, flows = append(gone, el), append(flows, f)
		default:
			allowed = append(allowed, f)
		}
	}
	return gone, flows, allowed
}

// deniedReplies returns those elements of a set of policy.ResumedSets whose connections policies deny now.
func (d *desired) deniedReplies(p policy.EnforcementPoint, resumed []state.Element) (out []state.Element) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, el := range resumed {
		if f, ok := policy.ResumedFlow(el); ok && !d.index.Allowed(p, f) {
			out = append(out, el)
		}
	}
	return out
}

// takeSince returns since, and resets it: what arrives from now on is not in the write that begins.
func (d *desired) takeSince() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := d.since
	d.since = time.Time{}
	return since
}

// putSinceBack undoes takeSince after a write that failed.
func (d *desired) putSinceBack(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = since
}
