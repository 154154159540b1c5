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
// tracked=true it begins with the connections that are tracked already.
const RoutePath = "/observe/flows"

// The parameters of the route.
const (
	ParameterFollow  = "follow"
	ParameterTracked = "tracked"
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
	// NS is the node's namespace; nil is the process's own.
	NS *netns.NS
	// Drops begins to report packets that the kernel drops, in all namespaces; nil is by the tracepoint kfree_skb.
	Drops func(each func(drops.Drop)) (*drops.Session, error)
	Log   *slog.Logger
	Now   func() time.Time
}

// Observer observes this node for all streams that are open.
type Observer struct {
	cfg Config

	mu      sync.Mutex
	streams map[*stream]bool
	source  *source // nil while there is no stream
	names   *names
}

// New creates an Observer.
func New(c Config) *Observer {
	if c.Drops == nil {
		c.Drops = streamDrops
	}
	return &Observer{cfg: c, streams: map[*stream]bool{}}
}

// Routes are its routes of the admin socket.
func (o *Observer) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET " + RoutePath: func(r *http.Request) (any, error) {
			values := r.URL.Query()
			q := query{follow: values.Get(ParameterFollow) == "true", tracked: values.Get(ParameterTracked) == "true"}
			return adminapi.Stream(func(ctx context.Context, lines *adminapi.Lines) error {
				return o.stream(ctx, q, lines)
			}), nil
		},
	}
}

// open adds a stream, and begins to listen with the first one.
func (o *Observer) open() (*stream, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.source == nil {
		own, err := self(o.cfg.NS)
		if err != nil {
			return nil, err
		}
		o.names = newNames(o.cfg, own)
		if o.source, err = listen(o.cfg, callbacks{o.event, o.denied, o.dropped}); err != nil {
			return nil, err
		}
	}
	s := newStream(o.source)
	s.begin = flow.Line{Begin: &flow.Begin{
		Node: o.cfg.Node, Addrs: o.names.own.addrs, Level: "off", Notes: o.source.notes,
	}}
	o.names.refresh()
	s.holders = o.names.holders.all(o.cfg.Now())
	o.streams[s] = true
	return s, nil
}

// close removes a stream, and stops listening with the last one.
func (o *Observer) close(s *stream) {
	o.mu.Lock()
	delete(o.streams, s)
	var last *source
	if len(o.streams) == 0 {
		last, o.source, o.names = o.source, nil, nil
	}
	o.mu.Unlock()
	if last != nil {
		last.close() // without the lock: its events wait for that
	}
}

// dropped passes a packet that the kernel has dropped to the streams.
func (o *Observer) dropped(d drops.Drop) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	if r, ok := o.names.dropped(d); ok {
		o.sendLocked([]flow.Line{{Flow: &r}})
	}
}

// event passes an event of connection tracking to the streams.
func (o *Observer) event(e conntrack.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	r := o.names.connection(e)
	o.sendLocked([]flow.Line{{Flow: &r}})
}

// denied passes a denied packet to the streams.
func (o *Observer) denied(p policy.DeniedPacket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.names == nil {
		return
	}
	o.sendLocked(o.names.refresh())
	r := o.names.denied(p)
	o.sendLocked([]flow.Line{{Flow: &r}})
}

func (o *Observer) sendLocked(lines []flow.Line) {
	for _, l := range lines {
		for s := range o.streams {
			s.put(l)
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
