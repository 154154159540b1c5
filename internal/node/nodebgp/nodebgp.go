// SPDX-License-Identifier: Apache-2.0

// Package nodebgp is the agent's part in BGP: it sends what it knows of the cluster to weft-bgp, which plans and speaks, and
// passes the learned routes to the mesh's reconciler. It does not interpret the objects of BGP: the agent stays small.
//
// Learned routes outlive both programs. While weft-bgp does not run, and until a new one knows the routes of all peers,
// those of the earlier one stay; for the restart time, at the longest. An agent that has just started leaves the routes in
// the kernel as they are for the same time.
package nodebgp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/bgp/wire"
	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/bgp"
	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	// redial is the pause between two attempts to connect to weft-bgp, settle the pause after a change, which rarely comes
	// alone.
	redial, settle = time.Second, 100 * time.Millisecond
	// check is the period after which next hops are resolved again.
	check = 5 * time.Second
)

// Config configures a Node.
type Config struct {
	Node string
	// Socket is that of weft-bgp.
	Socket string
	// SecretNamespace has the Secrets with passwords.
	SecretNamespace string
	// SecretInterval is the period after which they are read again.
	SecretInterval time.Duration
	// Backend: BGP is the backend of the mesh.
	Backend bool
	Objects store.Objects
	Facts   *facts.Facts
	// Topology returns the mesh that is in force, nil before the first pass. Changed requests another pass.
	Topology func() *mesh.Topology
	Changed  func()
	// Report, which may be nil, creates an event on this node.
	Report func(context.Context, model.Event) error
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
}

// Node is BGP on this node.
type Node struct {
	cfg    Config
	passed notify.Chan
	hops   *resolver
	sent   *wire.Request // the last facts, of Run

	mu sync.Mutex
	// plan is the last plan of weft-bgp.
	plan wire.Plan
	// reported is what weft-bgp has reported since the connection; held are the routes of the time before, until synced or
	// until deadline.
	reported, held map[netip.Prefix]bgp.Route
	synced         bool
	deadline       time.Time
	peers          []bgp.PeerState
	lost           map[netip.Addr]uint64 // sessions, since the agent started
	// connected is false while weft-bgp cannot be reached, trouble is why, or why the plan is not in force there.
	connected bool
	trouble   string
}

// New returns a Node.
func New(cfg Config) *Node {
	cfg.Log = cfg.Log.With("component", "bgp")
	return &Node{
		cfg: cfg, passed: notify.New(), hops: newResolver(), lost: map[netip.Addr]uint64{}, trouble: "weft-bgp has not been reached yet",
		deadline: cfg.Now().Add(bgp.DefaultRestartTime * time.Second), // now: the first pass of the mesh may be before Run
	}
}

// Passed reports that the mesh's topology may have changed.
func (n *Node) Passed() { n.passed.Notify() }

// Run plans and follows the speaker until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer n.hops.close()
	o := &objects{cfg: n.cfg, raw: map[store.Key]json.RawMessage{}, passwords: map[string]string{}}
	svc := &services{cfg: n.cfg, all: map[store.Key]model.BGPService{}, slices: map[store.Key]endpoints{}}
	events, ofServices := make(chan store.Event), make(chan store.Event)
	go watch(ctx, n.cfg, events, calico.BGPKinds()...)
	changed, unsubscribe := n.cfg.Facts.Subscribe()
	defer unsubscribe()
	link := connection{cfg: n.cfg, want: make(chan wire.Request, 1), updates: make(chan update)}
	go link.run(ctx)
	var due, late <-chan time.Time
	denied := make(chan store.Kind, 1)
	again, secrets := n.cfg.After(check), n.cfg.After(n.cfg.SecretInterval)
	for {
		soon := func() {
			if due == nil {
				due = n.cfg.After(settle)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			o.put(e)
			if o.synced && !svc.watched && o.wantsServices() {
				svc.watched, late = true, n.cfg.After(servicesWait)
				go watch(ctx, n.cfg, ofServices, store.Services(), store.EndpointSlices())
				go checkRights(ctx, n.cfg, denied, store.Services(), store.EndpointSlices())
			}
			soon()
		case e := <-ofServices:
			if svc.put(e) {
				soon()
			}
		case kind := <-denied: // the agent's role is of an earlier version: it is not waited for what cannot come
			if !svc.known {
				n.cfg.Log.Warn("single addresses of Services are not announced: the agent may not watch them; apply the roles of its version",
					"kind", kind.Kind)
				svc.known = true
				soon()
			}
		case <-late:
			if late = nil; !svc.known {
				n.cfg.Log.Warn("Services cannot be read yet: their single addresses are not announced")
				svc.known = true
				soon()
			}
		case <-changed:
			soon()
		case <-n.passed:
			soon()
		case u := <-link.updates:
			for _, e := range n.take(u) {
				n.report(ctx, e)
			}
			if u.Plan != nil && o.need(ctx, u.Plan.Secrets) {
				soon()
			}
		case <-due:
			due = nil
			n.send(o, svc, link.want)
		case <-again:
			again = n.cfg.After(check)
			n.expire()
			if n.hops.changed(ctx) {
				n.cfg.Changed()
			}
		case <-secrets:
			secrets = n.cfg.After(n.cfg.SecretInterval)
			if o.need(ctx, n.secrets()) {
				soon()
			}
		}
	}
}

// send sends the facts.
func (n *Node) send(o *objects, svc *services, to chan wire.Request) {
	cluster, topology := n.cfg.Facts.Cluster(), n.cfg.Topology()
	if cluster == nil || topology == nil || !o.synced || svc.watched && !svc.known {
		return
	}
	r := wire.Request{
		Version: wire.Version, Self: n.cfg.Node, Backend: n.cfg.Backend, Passwords: maps.Clone(o.passwords),
		Own: slices.Concat(topology.PodCIDRs, topology.Blocks), Objects: o.all(), Pools: map[string][]netip.Prefix{},
		Services: svc.announced(),
	}
	for _, c := range cluster.Nodes {
		r.Nodes = append(r.Nodes, model.Node{Name: c.Name, Addrs: c.Addrs, PodCIDRs: c.PodCIDRs, Labels: c.Labels, BGP: c.BGP})
	}
	for _, p := range cluster.Pools {
		for _, region := range p.Regions {
			if p.IsClusterPool() && !p.ForServices() { // those are ranges of Services
				r.Pools[p.Name] = append(r.Pools[p.Name], region.CIDR)
			}
			if p.DisableBGPExport {
				r.Unexported = append(r.Unexported, region.CIDR)
			}
		}
	}
	for _, u := range topology.Underlay {
		r.OnLink = append(r.OnLink, u.OnLink...)
	}
	if n.sent != nil && reflect.DeepEqual(*n.sent, r) { // most passes of the mesh change nothing; a plan has its price
		return
	}
	n.sent = &r
	select { // the latest facts replace those that were not sent
	case <-to:
	default:
	}
	to <- r
}

// secrets returns the passwords that the last plan needs.
func (n *Node) secrets() []model.SecretKey {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.plan.Secrets
}

// report creates an event on this node.
func (n *Node) report(ctx context.Context, e model.Event) {
	if n.cfg.Report == nil {
		return
	}
	if err := n.cfg.Report(ctx, e); err != nil {
		n.cfg.Log.Warn("event could not be created", "reason", e.Reason, "err", err)
	}
}

// take takes a message of the speaker, or the end of the connection, and returns the events that it causes.
func (n *Node) take(u update) (events []model.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if u.err != nil {
		if n.connected {
			n.cfg.Log.Warn("weft-bgp is gone; learned routes stay for the restart time", "err", u.err)
			if n.synced || n.deadline.IsZero() { // else the time of the earlier speaker continues
				n.deadline = n.cfg.Now().Add(time.Duration(max(n.plan.RestartTime, 1)) * time.Second)
			}
			n.held, n.reported, n.synced = n.routesLocked(), nil, false
		}
		n.connected, n.trouble = false, u.err.Error()
		return nil
	}
	n.connected = true
	before := n.knownLocked()
	changes := len(u.Routes)+len(u.Withdrawn) > 0
	if u.Whole || n.reported == nil {
		n.reported = map[netip.Prefix]bgp.Route{}
	}
	for _, r := range u.Routes {
		n.reported[r.Prefix] = r
	}
	for _, p := range u.Withdrawn {
		delete(n.reported, p)
	}
	if u.Peers != nil || u.Whole {
		events = n.tookPeersLocked(u.Peers)
	}
	if u.Plan != nil {
		for _, p := range u.Plan.Problems {
			if !slices.Contains(n.plan.Problems, p) {
				n.cfg.Log.Warn("BGP leaves out an object", "problem", p.Message, "hint", p.Hint)
			}
		}
		n.plan = *u.Plan
	}
	if u.Error != n.trouble && u.Error != "" {
		n.cfg.Log.Error("BGP is not configured as planned", "err", u.Error)
	}
	n.trouble = u.Error
	if u.Synced && !n.synced {
		n.synced, n.held, changes = true, nil, true
	}
	if changes || before != n.knownLocked() {
		n.cfg.Changed()
	}
	return events
}

// expire drops the routes of an earlier speaker when their time is over.
func (n *Node) expire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.synced || n.deadline.IsZero() || n.cfg.Now().Before(n.deadline) {
		return
	}
	n.cfg.Log.Warn("learned routes of before are deleted: the restart time is over", "routes", len(n.held))
	n.held, n.deadline = nil, time.Time{}
	n.cfg.Changed()
}

// knownLocked reports whether routes in the kernel that are not among routesLocked are to be deleted.
func (n *Node) knownLocked() bool { return n.synced || n.held != nil || n.deadline.IsZero() }

// routesLocked returns the routes that should be in the kernel.
func (n *Node) routesLocked() map[netip.Prefix]bgp.Route {
	out := make(map[netip.Prefix]bgp.Route, len(n.held)+len(n.reported))
	maps.Copy(out, n.held)
	maps.Copy(out, n.reported)
	return out
}

// update is a message of the speaker, or why there is no connection.
type update struct {
	wire.Update
	err error
}

// connection is the connection to weft-bgp.
type connection struct {
	cfg     Config
	want    chan wire.Request // the latest facts
	updates chan update
}

// run connects again and again, until ctx ends.
func (c connection) run(ctx context.Context) {
	var last *wire.Request
	for ctx.Err() == nil {
		err := c.once(ctx, &last)
		select {
		case c.updates <- update{err: err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-c.cfg.After(redial):
		case <-ctx.Done():
		}
	}
}

// once serves one connection, and returns why it has ended.
func (c connection) once(ctx context.Context, last **wire.Request) error {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", c.cfg.Socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("weft-bgp does not run: %w", err)
	}
	if err != nil {
		return err
	}
	conn := wire.NewConn(raw)
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	failed := make(chan error, 1)
	done, stop := context.WithCancel(ctx)
	defer stop()
	go func() { failed <- c.receive(done, conn) }()
	if *last != nil {
		if err := conn.Send(**last); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case want := <-c.want:
			*last = &want
			if err := conn.Send(want); err != nil {
				return err
			}
		}
	}
}

func (c connection) receive(ctx context.Context, conn *wire.Conn) error {
	for {
		var u wire.Update
		if err := conn.Receive(&u); err != nil {
			return err
		}
		if err := wire.CheckVersion(u.Version); err != nil {
			return err
		}
		select {
		case c.updates <- update{Update: u}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
