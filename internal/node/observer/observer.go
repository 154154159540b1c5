// SPDX-License-Identifier: Apache-2.0

// Package observer streams the flows of this node for weft observe: tracked connections as they begin and end, and denied
// packets, with the names that their ends have at that time, and what policies decide. Without a stream it has no socket,
// rule or program. It changes nothing in the kernel, so that nothing is left when the agent is killed.
package observer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// RoutePath (GET) is the route of the admin socket: a stream of flow.Line. With follow=true it does not end; with
// tracked=true it begins with the connections that are tracked already, and with since, a time of RFC 3339, with the
// flows since then that the agent has kept. With why=true decisions have the rules of nftables, and with states=true each change
// of the state of a TCP connection is a flow. With labels=true pods have their labels. filter, a list of
// flow.Condition as JSON, selects flows; names of endpoints of other nodes are not known to it.
const RoutePath = "/observe/flows"

// The parameters of the route.
const (
	ParameterFollow  = "follow"
	ParameterTracked = "tracked"
	ParameterSince   = "since"
	ParameterWhy     = "why"
	ParameterFilter  = "filter"
	ParameterStates  = "states"
	ParameterLabels  = "labels"
)

// Records are the attachments of this node.
type Records interface {
	List() ([]attach.Record, error)
	// Version changes with the records.
	Version() uint64
}

// Policies are this node's network policies.
type Policies interface {
	Decide(network string, f compiled.Flow) (sides []compiled.Side, known bool)
	// DecideAtHosts returns what the node's host endpoints decide, or why that is unknown.
	DecideAtHosts(f compiled.Flow) (sides []compiled.Side, unknown string)
	// Version changes whenever what Decide and Holder return may have changed.
	Version() uint64
	// Holder returns the pod that has an address, also of another node.
	Holder(network string, a netip.Addr) (pod model.PodRef, node string, ok bool)
	LogsDenied() bool
	ObserveDenied(f func(policy.DeniedPacket)) (stop func())
}

// Config is what an Observer observes.
type Config struct {
	Node    string
	Records Records
	// Policies is nil if this agent enforces none.
	Policies Policies
	// Nodes returns the nodes of the cluster; nil: they are not known.
	Nodes func() []model.Node
	// Pods returns the pods of this node, and maybe of others, with their labels: another slice after each change. nil: labels
	// are not known.
	Pods func() []model.Pod
	// NS is the node's namespace; nil is the process's own.
	NS *netns.NS
	// Level is what is observed without a stream; empty is flow.LevelOff.
	Level string
	// Export, which may be nil, gets the flows that the level keeps. It must not wait.
	Export func(flow.Record)
	// Own, which may be nil, reports whether a connection of this node, from a local port, is one by which flows are
	// exported: it is no flow.
	Own func(proto uint8, port uint16, to netip.AddrPort) bool
	// Settings, which may be nil, records the node's settings that the level changes.
	Settings Settings
	// Drops begins to report packets that the kernel drops, in all namespaces; nil is by the tracepoint kfree_skb.
	Drops func(each func(drops.Drop)) (*drops.Session, error)
	Log   *slog.Logger
	Now   func() time.Time
}

// Observer observes this node for all streams that are open, and as its level demands.
type Observer struct {
	cfg Config

	mu      sync.Mutex
	streams map[*stream]bool
	readers int // of streams, also of those that are about to begin
	source  *source
	names   *names // nil while nothing is observed
	running bool   // Run observes
	ring    ring
	limit   limit // of dropped packets
	// ringLost are the lost flows that the ring knows of, and total those since the agent began.
	ringLost, total flow.Lost
}

// New creates an Observer.
func New(c Config) *Observer {
	if c.Drops == nil {
		c.Drops = streamDrops
	}
	if c.Level == "" {
		c.Level = flow.LevelOff
	}
	o := &Observer{cfg: c, streams: map[*stream]bool{}}
	o.source = &source{cfg: c, to: callbacks{o.receive, o.denied, o.dropped}, stopDenied: func() {}}
	return o
}

// renewPeriod is how often the names of nodes are read again while no stream begins.
const renewPeriod = time.Minute

// Run observes as the level demands, and keeps the last flows, until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	if err := o.account(); err != nil {
		o.cfg.Log.Warn("whether the kernel counts connections' packets could not be set", "err", err)
	}
	if o.cfg.Level == flow.LevelOff {
		return nil
	}
	o.begin(ctx)
	defer func() {
		o.mu.Lock()
		o.running = false
		o.mu.Unlock()
		o.release()
	}()
	loss, renew := time.NewTicker(lossPeriod), time.NewTicker(renewPeriod)
	defer loss.Stop()
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-loss.C:
			o.keepLoss()
			o.awaitNodes()
			o.reopen()
		case <-renew.C:
			o.mu.Lock()
			err := o.renewLocked()
			o.mu.Unlock()
			if err != nil {
				o.cfg.Log.Warn("names of nodes in flows", "err", err)
			}
		}
	}
}

// awaitNodes reads the names of nodes as soon as they are known: an agent that starts observes before.
func (o *Observer) awaitNodes() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cfg.Nodes == nil || o.names == nil || o.names.named || len(o.cfg.Nodes()) == 0 {
		return
	}
	if err := o.renewLocked(); err != nil {
		o.cfg.Log.Warn("names of nodes in flows", "err", err)
	}
}

// reopen opens sockets that have failed.
func (o *Observer) reopen() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.source.stopped() {
		return
	}
	err := o.needLocked()
	o.cfg.Log.Warn("events of connection tracking were not received any more; some flows are missing", "err", err)
}

// begin opens what the level needs; it tries that again until ctx ends.
func (o *Observer) begin(ctx context.Context) {
	for logged := false; ctx.Err() == nil; logged = true {
		o.mu.Lock()
		o.running = true
		err := o.needLocked()
		notes := o.source.notes
		o.mu.Unlock()
		for _, note := range notes {
			o.cfg.Log.Warn("a part of the flows is not observed", "why", note)
		}
		if err == nil {
			return
		}
		if !logged {
			o.cfg.Log.Warn("flows cannot be observed yet", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(renewPeriod):
		}
	}
}

// keepLoss adds the flows that were lost to the ring.
func (o *Observer) keepLoss() {
	o.mu.Lock()
	defer o.mu.Unlock()
	sum := o.source.lost()
	sum.Update = 0                      // of streams, as those that follow
	if o.cfg.Level != flow.LevelFlows { // those of streams, which have their own account
		sum.New, sum.End = 0, 0
	}
	if lost := sum.Since(o.ringLost); lost.Sum() > 0 {
		o.total = flow.Lost{
			New: o.total.New + lost.New, End: o.total.End + lost.End, Drops: o.total.Drops + lost.Drops,
		}
		lost.Time, lost.Node = o.cfg.Now(), o.cfg.Node
		o.ring.add(entry{at: lost.Time, lost: &lost})
	}
	o.ringLost = sum
}

// Lost returns how many flows were lost since the agent began that its level demands.
func (o *Observer) Lost() flow.Lost {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.total
}

// needLocked opens what streams and the level need.
func (o *Observer) needLocked() error {
	if err := o.renewLocked(); err != nil {
		return err
	}
	if err := o.source.open(o.neededLocked()); err != nil {
		return err
	}
	return o.source.followStates(o.wantsStatesLocked())
}

// wantsStatesLocked reports whether a stream follows the states of connections.
func (o *Observer) wantsStatesLocked() bool {
	for s := range o.streams {
		if s.states {
			return true
		}
	}
	return false
}

func (o *Observer) neededLocked() (events, packets bool) {
	asked := len(o.streams) > 0
	return asked || o.running && o.cfg.Level == flow.LevelFlows, asked || o.running
}

// renewLocked reads the addresses of this node and of the others.
func (o *Observer) renewLocked() error {
	own, err := self(o.cfg.NS)
	if err != nil {
		return err
	}
	if o.names == nil {
		o.names = newNames(o.cfg)
	}
	o.names.setNodes(own)
	o.setWhyLocked()
	return nil
}

// setWhyLocked adds rules to flows if a stream wants them.
func (o *Observer) setWhyLocked() {
	if o.names != nil {
		why := false
		for s := range o.streams {
			why = why || s.why
		}
		o.names.setWhy(why)
	}
}

// release closes what is not needed any more.
func (o *Observer) release() {
	o.mu.Lock()
	events, packets := o.neededLocked()
	closers := o.source.detach(events, packets)
	if !packets {
		o.names = nil
	}
	if err := o.source.followStates(o.wantsStatesLocked()); err != nil {
		o.cfg.Log.Warn("states of connections are followed still", "err", err)
	}
	o.setWhyLocked()
	o.mu.Unlock()
	for _, closeOne := range closers { // without the lock: callbacks wait for that
		closeOne()
	}
}

// Routes are its routes of the admin socket.
func (o *Observer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET " + RoutePath: func(r *http.Request) (any, error) {
			q, err := parseQuery(r.URL.Query())
			if err != nil {
				return nil, err
			}
			return adminapi.Stream(func(ctx context.Context, lines *adminapi.Lines) error {
				return o.stream(ctx, q, Lines{lines})
			}), nil
		},
	}
}

// Stream streams lines until ctx ends, or the last one; values are the parameters of RoutePath.
func (o *Observer) Stream(ctx context.Context, values url.Values, to Sink) error {
	q, err := parseQuery(values)
	if err != nil {
		return err
	}
	return o.stream(ctx, q, to)
}

// open adds a stream.
func (o *Observer) open(q query) (*stream, error) {
	o.mu.Lock()
	s := newStream(q)
	o.streams[s] = true
	err := o.needLocked()
	if err != nil {
		o.mu.Unlock()
		o.close(s)
		return nil, err
	}
	defer o.mu.Unlock()
	s.events, s.reported = o.source.events, o.source.lost()
	begin := flow.Begin{Node: o.cfg.Node, Addrs: o.names.own.addrs, Level: o.cfg.Level, Notes: o.source.notes}
	begin.Labels = q.labels && o.cfg.Pods != nil
	o.names.refresh()
	s.holders = o.names.holders.all(o.cfg.Now())
	if !q.since.IsZero() {
		s.past, begin.From = o.ring.since(q.since)
	}
	s.begin = flow.Line{Begin: &begin}
	return s, nil
}

// close removes a stream.
func (o *Observer) close(s *stream) {
	o.mu.Lock()
	delete(o.streams, s)
	o.mu.Unlock()
	o.release()
}

// dropped passes a packet that the kernel has dropped to the streams.
func (o *Observer) dropped(d drops.Drop) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	if o.names.foreign(d) {
		return
	}
	if !o.limit.admits(o.cfg.Now()) {
		o.source.missed.drops.sum++
		return
	}
	if r, ok := o.names.dropped(d); ok {
		o.sendFlowLocked(entryOf(r))
	}
}

// receive passes events of connection tracking to the streams.
func (o *Observer) receive(all []conntrack.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	now := o.cfg.Now()
	for i := range all {
		if o.names.isOwn(&all[i]) {
			continue
		}
		o.sendFlowLocked(o.names.entry(&all[i], now))
	}
}

// denied passes a denied packet to the streams.
func (o *Observer) denied(p policy.DeniedPacket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	o.sendFlowLocked(entryOf(o.names.denied(p)))
}

// sendFlowLocked keeps a flow as the level demands, and passes it to the exporters and the streams.
func (o *Observer) sendFlowLocked(e entry) {
	update := e.conversation.Kind == flow.Update // for streams that ask for it
	keep := o.running && !update && (o.cfg.Level == flow.LevelFlows ||
		o.cfg.Level == flow.LevelDenied && e.conversation.Verdict != flow.Allowed)
	if keep {
		o.ring.add(e)
	}
	export := keep && o.cfg.Export != nil
	if !export && len(o.streams) == 0 {
		return
	}
	r := e.record()
	if export {
		o.cfg.Export(*r.WithoutLabels())
	}
	for s := range o.streams {
		if !update || s.states {
			s.put(flow.Line{Flow: &r}, o.mostLocked())
		}
	}
}

// mostLocked is how many flows may wait for a stream.
func (o *Observer) mostLocked() int { return min(queueSize-reserved, queuedSize/len(o.streams)) }

// sendLocked passes lines that are no flows to the streams.
func (o *Observer) sendLocked(lines []flow.Line) {
	for _, l := range lines {
		for s := range o.streams {
			s.put(l, o.mostLocked())
		}
	}
}

// identity is the node's namespace.
type identity struct {
	addrs []netip.Addr
	space uint64
}

// self returns the node's namespace and its addresses.
func self(ns *netns.NS) (id identity, err error) {
	n, err := lookup.Open(ns)
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if id.addrs, err = n.Addrs(context.Background()); err != nil {
		return id, fmt.Errorf("addresses of the node: %w", err)
	}
	if ns != nil {
		id.space, err = ns.ID()
		return id, err
	}
	own, err := netns.Current()
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	id.space, err = own.ID()
	return id, err
}
