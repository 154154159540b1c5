// SPDX-License-Identifier: Apache-2.0

package observer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/kernel/drops"
	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

func TestMain(m *testing.M) {
	if flows := os.Getenv(loadVariable); flows != "" {
		if err := load(flows); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(nettest.Main(m))
}

var errNoDrops = errors.New("not in this test")

// records are attachments that a test changes.
type records struct {
	mu      sync.Mutex
	version uint64
	all     []attach.Record
}

func (r *records) List() ([]attach.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all, nil
}

func (r *records) Version() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// set replaces them by pods with an address each.
func (r *records) set(pods map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
	r.version++
	for pod, addr := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		r.all = append(r.all, attach.Record{
			Stage: attach.Done,
			Request: model.Request{
				Network: "weft", ContainerID: name, IfName: "eth0",
				Args: [][2]string{{"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}},
			},
			Result: &model.Result{IPs: []model.IP{{Address: netip.PrefixFrom(netip.MustParseAddr(addr), 32)}}},
		})
	}
}

// policies allow what one policy allows.
type policies struct {
	mu      sync.Mutex
	denied  func(policy.DeniedPacket)
	remote  string
	version uint64
}

var (
	shopPolicy = model.PolicyKey{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}
	hostPolicy = model.PolicyKey{Kind: "GlobalNetworkPolicy", Name: "hosts"}
)

func (*policies) Decide(_ string, f compiled.Flow) ([]compiled.Side, bool) {
	return []compiled.Side{{
		Direction: "ingress", Local: true, Allowed: f.DstPort != 99, Decided: []model.PolicyKey{shopPolicy}, Rule: 2,
	}}, true
}

// DecideAtHosts denies port 96 at an interface, and does not know of port 95.
func (*policies) DecideAtHosts(f compiled.Flow) (sides []compiled.Side, unknown string) {
	switch f.DstPort {
	case 95:
		return nil, "the interface is not known"
	case 96:
		return []compiled.Side{{Direction: "ingress", HostEndpoint: "up", Decided: []model.PolicyKey{hostPolicy}, Rule: 3}}, ""
	}
	return nil, ""
}

// Holder knows one pod of another node, until it is gone.
func (p *policies) Holder(network string, a netip.Addr) (model.PodRef, string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if network != "" || a != netip.MustParseAddr("10.42.2.9") || p.remote == "" {
		return model.PodRef{}, "", false
	}
	return model.PodRef{Namespace: "shop", Name: p.remote}, "node2", true
}

func (p *policies) setRemote(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remote = name
	p.version++
}

// Version changes with the pod of another node.
func (p *policies) Version() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.version
}

func (*policies) LogsDenied() bool { return true }

func (p *policies) ObserveDenied(f func(policy.DeniedPacket)) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = f
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.denied = nil
	}
}

// node is a node that is observed by its admin socket.
type node struct {
	observer *observer.Observer
	ns       *netns.NS
	records  *records
	policies *policies
	socket   string
}

func newNode(t *testing.T, options ...func(*observer.Config)) *node {
	t.Helper()
	n := &node{
		ns: nettest.NS(t, "n"), records: &records{}, policies: &policies{}, socket: filepath.Join(t.TempDir(), "s"),
	}
	nettest.Run(t, n.ns, "ip", "link", "set", "lo", "up")
	nettest.Run(t, n.ns, "ip", "addr", "add", "10.0.0.1/32", "dev", "lo")
	for _, a := range []string{"10.42.1.2", "10.42.1.3"} {
		nettest.Run(t, n.ns, "ip", "addr", "add", a+"/32", "dev", "lo", "scope", "link")
	}
	if out, err := nettest.Try(n.ns, "nft", "add table ip t; "+
		"add chain ip t c { type nat hook output priority -100; }; "+
		"add rule ip t c ip daddr 10.96.0.7 udp dport 53 dnat to 10.42.1.3:5353"); err != nil {
		nettest.Skip(t, "the kernel has no NAT: "+out)
	}
	nettest.Run(t, n.ns, "ip", "route", "add", "10.96.0.0/16", "dev", "lo")
	nettest.Run(t, n.ns, "ip", "route", "add", "local", "10.42.2.9/32", "dev", "lo")
	c := observer.Config{
		Node: "node1", Records: n.records, Policies: n.policies, NS: n.ns, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Drops: func(func(drops.Drop)) (*drops.Session, error) { return nil, errNoDrops },
	}
	for _, option := range options {
		option(&c)
	}
	o := observer.New(c)
	n.observer = o
	ctx, stop := context.WithCancel(t.Context())
	l, err := adminapi.Listen(n.socket, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- o.Routes().ServeOn(ctx, l, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// A stream that has ended closes its programs still, for which the kernel takes long; the last socket is closed after them.
		until(t, "closed", func() bool { return n.sockets(t) == 0 })
	})
	return n
}

// reader reads a stream.
type reader struct {
	t     *testing.T
	lines chan flow.Line
	stop  func()
	done  chan error
	mu    sync.Mutex // who holds it stops the reader
}

func (n *node) follow(t *testing.T) *reader {
	t.Helper()
	return n.read(t, map[string][]string{observer.ParameterFollow: {"true"}, observer.ParameterTracked: {"true"}})
}

func (n *node) read(t *testing.T, parameters map[string][]string) *reader {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &reader{t: t, lines: make(chan flow.Line, 100000), stop: stop, done: make(chan error, 1)}
	go func() {
		q := adminapi.Request{Socket: n.socket, Method: "GET", Path: observer.RoutePath, Query: parameters}
		r.done <- q.Stream(ctx, func(document []byte) error {
			var l flow.Line
			if err := json.Unmarshal(document, &l); err != nil {
				return err
			}
			r.lines <- l
			r.mu.Lock()
			defer r.mu.Unlock()
			return nil
		})
	}()
	t.Cleanup(func() { stop() })
	return r
}

// all are the lines of a stream that ends.
func (r *reader) all() iter.Seq[flow.Line] {
	return func(yield func(flow.Line) bool) {
		if err := <-r.done; err != nil {
			r.t.Error(err)
		}
		for len(r.lines) > 0 {
			if !yield(<-r.lines) {
				return
			}
		}
	}
}

// next returns the next line that is wanted.
func (r *reader) next(what string, wanted func(flow.Line) bool) flow.Line {
	r.t.Helper()
	for late := time.After(30 * time.Second); ; {
		select {
		case l := <-r.lines:
			if wanted(l) {
				return l
			}
		case err := <-r.done:
			r.t.Fatalf("stream ended before %s: %v", what, err)
		case <-late:
			r.t.Fatalf("no line: %s", what)
		}
	}
}

func (r *reader) flow(what string, wanted func(flow.Record) bool) flow.Record {
	r.t.Helper()
	return *r.next(what, func(l flow.Line) bool { return l.Flow != nil && wanted(*l.Flow) }).Flow
}

func (r *reader) begun() { r.next("live", func(l flow.Line) bool { return l.Known }) }

// send sends datagrams, each from another port.
func (n *node) send(t *testing.T, from, to string, first, count int) {
	t.Helper()
	err := n.ns.Do(func() error {
		for i := range count {
			local := &net.UDPAddr{IP: net.ParseIP(from), Port: first + i}
			c, err := (&net.Dialer{LocalAddr: local}).Dial("udp", to)
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			if err := errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// connect makes a TCP connection, which ends with the test.
func (n *node) connect(t *testing.T, to string) {
	t.Helper()
	err := n.ns.Do(func() error {
		l, err := net.Listen("tcp", to)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = l.Close() })
		c, err := net.Dial("tcp", to)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flush ends all connections.
func (n *node) flush(t *testing.T) {
	t.Helper()
	var tracked effect.Conntrack
	_, err := tracked.Flush(n.ns, func(state.Connection) bool { return true })
	if err = errors.Join(err, tracked.Close()); err != nil {
		t.Fatal(err)
	}
}

// sockets returns how many netfilter sockets are open in the node's namespace.
func (n *node) sockets(t testing.TB) (count int) {
	t.Helper()
	for line := range strings.Lines(nettest.Run(t, n.ns, "cat", "/proc/net/netlink")) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "12" && f[2] != "0" { // of netfilter, and not the kernel's
			count++
		}
	}
	return count
}

// A flow has the names that its ends have at that time, the Service, and what policies decided.
func TestFlows(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t)
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	r := n.follow(t)
	defer func() { r.stop(); <-r.done }()
	begin := r.next("beginning", func(l flow.Line) bool { return l.Begin != nil }).Begin
	if begin.Node != "node1" || len(begin.Addrs) == 0 {
		t.Errorf("%+v", begin)
	}
	r.next("holder", func(l flow.Line) bool {
		return l.Holder != nil && l.Holder.Addr == netip.MustParseAddr("10.42.1.3") && l.Holder.Identity.Name == "shop/db"
	})
	r.begun()
	n.send(t, "10.42.1.2", "10.96.0.7:53", 4000, 1)
	f := r.flow("service", func(f flow.Record) bool { return f.From.Port == 4000 })
	if f.From.Name != "shop/web" || f.To.Name != "shop/db" || f.To.Port != 5353 || f.Via == nil ||
		f.Via.Addr.String() != "10.96.0.7" || f.Direction != flow.Local || f.Verdict != flow.Allowed ||
		f.Kind != flow.New || f.Protocol != "udp" {
		t.Errorf("%+v", f)
	}
	if len(f.Decisions) != 1 || f.Decisions[0].Rule != 2 || f.Decisions[0].Policies[0] != shopPolicy {
		t.Errorf("decisions %+v", f.Decisions)
	}
	// The address is used again.
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/next": "10.42.1.3"})
	n.send(t, "10.42.1.2", "10.42.1.3:80", 4001, 1)
	if f := r.flow("new holder", func(f flow.Record) bool { return f.From.Port == 4001 }); f.To.Name != "shop/next" {
		t.Errorf("%+v", f.To)
	}
	// A pod that is gone keeps its name, as for the end of its connections.
	n.records.set(map[string]string{"shop/web": "10.42.1.2"})
	n.send(t, "10.42.1.3", "10.42.1.2:80", 4002, 1)
	f = r.flow("holder that is gone", func(f flow.Record) bool { return f.From.Port == 4002 })
	if f.From.Name != "shop/next" || f.To.Name != "shop/web" {
		t.Errorf("%+v", f)
	}
	// A pod of another node has the name that it has then, and its connections keep it when it is gone. New ones do not.
	for i, c := range []struct{ now, want string }{{"far", "shop/far"}, {"next", "shop/next"}, {"", ""}} {
		n.policies.setRemote(c.now)
		n.send(t, "10.42.1.2", "10.42.2.9:80", 4100+i, 1)
		f = r.flow("remote pod", func(f flow.Record) bool { return f.From.Port == uint16(4100+i) })
		if f.To.Name != c.want || c.want != "" && (f.To.Kind != flow.PodEnd || f.To.Node != "node2") || f.Direction != flow.Egress {
			t.Errorf("remote %q: %+v", c.now, f)
		}
	}
	n.flush(t)
	f = r.flow("end", func(f flow.Record) bool { return f.From.Port == 4101 && f.Kind == flow.End })
	if f.To.Name != "shop/next" || f.To.Kind != flow.PodEnd {
		t.Errorf("end of a connection to a pod that is gone: %+v", f)
	}
	n.send(t, "10.42.1.2", "10.96.0.7:53", 4000, 1) // for what follows
	n.send(t, "10.42.1.2", "10.42.1.3:80", 4001, 1)
	n.policies.denied(policy.DeniedPacket{
		Packet: nflog.Packet{
			Proto: 6, From: netip.MustParseAddrPort("192.0.2.9:7"), To: netip.MustParseAddrPort("10.42.1.2:80"),
		},
		Direction: "ingress", Policies: []model.PolicyKey{shopPolicy},
	})
	f = r.flow("denial", func(f flow.Record) bool { return f.Kind == flow.Denied })
	if f.Verdict != flow.DeniedVerdict || f.From.Kind != flow.OutsideEnd || f.To.Name != "shop/web" ||
		f.Decisions[0].Policies[0] != shopPolicy {
		t.Errorf("%+v", f)
	}
	n.policies.denied(policy.DeniedPacket{
		Packet: nflog.Packet{
			Proto: 6, From: netip.MustParseAddrPort("192.0.2.9:8"), To: netip.MustParseAddrPort("10.42.1.2:96"),
		},
		Direction: "ingress", Policies: []model.PolicyKey{hostPolicy},
	})
	f = r.flow("denial at an interface", func(f flow.Record) bool { return f.Kind == flow.Denied && f.To.Port == 96 })
	if f.Why() != "ingress of host endpoint up GlobalNetworkPolicy hosts rule 3" {
		t.Errorf("%s, %+v", f.Why(), f)
	}
	// A stream has only what its filter selects.
	filtered := n.read(t, map[string][]string{
		observer.ParameterTracked: {"true"}, observer.ParameterFilter: {`[{"field":"port","values":["5353"]}]`},
	})
	for l := range filtered.all() {
		if l.Flow != nil && l.Flow.From.Port != 4000 {
			t.Errorf("not in the filter: %+v", l.Flow)
		}
	}
	wrong := n.read(t, map[string][]string{observer.ParameterFilter: {`[{"field":"port","values":["http"]}]`}})
	if err := <-wrong.done; err == nil || !strings.Contains(err.Error(), "http") {
		t.Errorf("wrong filter: %v", err)
	}
	// A TCP connection has its state.
	n.connect(t, "10.42.1.3:81")
	if f = r.flow("connection", func(f flow.Record) bool { return f.To.Port == 81 && f.Kind == flow.New }); f.State != "syn-sent" {
		t.Errorf("%+v", f)
	}
	established := n.read(t, map[string][]string{
		observer.ParameterTracked: {"true"}, observer.ParameterFilter: {`[{"field":"tcp-state","values":["established"]}]`},
	})
	var ports []uint16
	for l := range established.all() {
		if l.Flow != nil {
			ports = append(ports, l.Flow.To.Port)
		}
	}
	if len(ports) != 1 || ports[0] != 81 {
		t.Errorf("established connections to the ports %v", ports)
	}
	// What is there already begins another stream.
	second := n.follow(t)
	defer func() { second.stop(); <-second.done }()
	second.flow("tracked", func(f flow.Record) bool { return f.Kind == flow.Tracked && f.From.Port == 4001 })
}

// The states of TCP connections are flows for the reader that asks for them, and for no other.
func TestStates(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t, func(c *observer.Config) { c.Level = flow.LevelFlows })
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	stop := n.run(t)
	defer stop()
	r := n.read(t, map[string][]string{
		observer.ParameterFollow: {"true"}, observer.ParameterStates: {"true"},
		observer.ParameterFilter: {`[{"field":"tcp-state","values":["established"]}]`},
	})
	r.begun()
	other := n.follow(t)
	defer func() { other.stop(); <-other.done }()
	other.begun()
	n.connect(t, "10.42.1.3:81")
	f := r.flow("established", func(flow.Record) bool { return true })
	if f.Kind != flow.Update || f.State != "established" || f.To.Name != "shop/db" || f.To.Port != 81 || len(f.Decisions) > 0 {
		t.Errorf("%+v", f)
	}
	r.stop()
	<-r.done
	n.send(t, "10.42.1.2", "10.42.1.3:82", 4000, 1)
	other.flow("the next connection", func(f flow.Record) bool {
		if f.Kind == flow.Update {
			t.Errorf("not asked for: %+v", f)
		}
		return f.To.Port == 82
	})
	past := map[string][]string{observer.ParameterSince: {time.Now().Add(-time.Hour).Format(time.RFC3339Nano)}}
	for l := range n.read(t, past).all() {
		if l.Flow != nil && l.Flow.Kind == flow.Update {
			t.Errorf("kept: %+v", l.Flow)
		}
	}
}

// The connections by which flows are exported are no flows, from their beginning to their end.
func TestExportsAreNoFlows(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	sockets := export.NewSockets(time.Now)
	n := newNode(t, func(c *observer.Config) { c.Own = sockets.Has })
	r := n.follow(t)
	defer func() { r.stop(); <-r.done }()
	r.begun()
	err := n.ns.Do(func() error {
		l, err := net.Listen("tcp", "10.0.0.1:4739")
		if err != nil {
			return err
		}
		c, err := sockets.Dial(t.Context(), "tcp", "10.0.0.1:4739")
		if err != nil {
			return err
		}
		other, err := net.Dial("tcp", "10.0.0.1:4739")
		if err != nil {
			return err
		}
		return errors.Join(c.Close(), other.Close(), l.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	for l := range n.read(t, map[string][]string{observer.ParameterTracked: {"true"}}).all() {
		if l.Flow != nil && l.Flow.To.Port == 4739 && sockets.Has(6, l.Flow.From.Port, netip.MustParseAddrPort("10.0.0.1:4739")) {
			t.Errorf("among tracked connections: %+v", l.Flow)
		}
	}
	n.flush(t)
	n.send(t, "10.0.0.1", "10.42.1.3:80", 4000, 1)
	seen := map[flow.Kind]int{}
	r.flow("the last one", func(f flow.Record) bool {
		if f.To.Port == 4739 {
			seen[f.Kind]++
		}
		return f.From.Port == 4000
	})
	// Ends may come after the last one.
	if seen[flow.New] != 1 || seen[flow.End] > 1 {
		t.Errorf("flows of two connections, one by an exporter: %v", seen)
	}
}

// New connections of an address have the name of a pod that is gone for some seconds only; those that began earlier keep it.
func TestNamesOfGonePods(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	var mu sync.Mutex
	now := time.Now()
	n := newNode(t, func(c *observer.Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	r := n.follow(t)
	defer func() { r.stop(); <-r.done }()
	r.begun()
	for i, c := range []struct {
		set   map[string]string
		later time.Duration
		want  string
	}{
		{map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"}, 0, "shop/db"},
		{map[string]string{"shop/web": "10.42.1.2"}, 0, "shop/db"},
		{nil, time.Minute, "node1"}, // has the address in this test
	} {
		if c.set != nil {
			n.records.set(c.set)
		}
		mu.Lock()
		now = now.Add(c.later)
		mu.Unlock()
		n.send(t, "10.42.1.2", "10.42.1.3:80", 4000+i, 1)
		f := r.flow("connection", func(f flow.Record) bool { return f.From.Port == uint16(4000+i) })
		if f.To.Name != c.want {
			t.Errorf("%d: %+v, want %q", i, f.To, c.want)
		}
	}
	n.flush(t)
	if f := r.flow("end", func(f flow.Record) bool { return f.From.Port == 4000 && f.Kind == flow.End }); f.To.Name != "shop/db" {
		t.Errorf("end: %+v", f.To)
	}
}

// A dropped packet is denied if it has the mark of policies' denials, else the kernel's reason is reported.
func TestDropped(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t, func(c *observer.Config) { c.Drops = nil })
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	nettest.Run(t, n.ns, "nft", "add table ip f; add chain ip f c { type filter hook input priority 0; }; "+
		"add rule ip f c udp dport 98 drop; add rule ip f c udp sport 4002 udp dport 99 drop; "+
		fmt.Sprintf("add rule ip f c udp dport { 95, 96, 97, 99 } meta mark set %#x drop", compiled.DenyMark))
	r := n.follow(t)
	defer func() { r.stop(); <-r.done }()
	begin := r.next("beginning", func(l flow.Line) bool { return l.Begin != nil }).Begin
	if notes := strings.Join(begin.Notes, ", "); strings.Contains(notes, "dropped packets") {
		nettest.Skip(t, notes)
	}
	r.begun()
	n.send(t, "10.42.1.2", "10.42.1.3:98", 4000, 1)
	f := r.flow("drop", func(f flow.Record) bool { return f.To.Port == 98 && f.Kind != flow.New })
	if f.Kind != flow.Dropped || f.Verdict != flow.DroppedVerdict || f.Reason != "NETFILTER_DROP at lo" ||
		f.From.Name != "shop/web" || f.To.Name != "shop/db" {
		t.Errorf("%+v", f)
	}
	n.send(t, "10.42.1.2", "10.42.1.3:99", 4001, 1)
	f = r.flow("denial", func(f flow.Record) bool { return f.To.Port == 99 && f.Kind != flow.New })
	if f.Kind != flow.Denied || f.Verdict != flow.DeniedVerdict || f.Decisions[0].Policies[0] != shopPolicy {
		t.Errorf("%+v", f)
	}
	// Another packet filter has dropped what the policy would have denied, too.
	n.send(t, "10.42.1.2", "10.42.1.3:99", 4002, 1)
	f = r.flow("drop", func(f flow.Record) bool { return f.From.Port == 4002 && f.Kind != flow.New })
	if f.Kind != flow.Dropped || f.Verdict != flow.DroppedVerdict || f.Reason != "NETFILTER_DROP at lo" || len(f.Decisions) > 0 {
		t.Errorf("a foreign drop: %+v", f)
	}
	// A host endpoint's policy has denied it.
	n.send(t, "10.42.1.2", "10.42.1.3:96", 4004, 1)
	f = r.flow("denial", func(f flow.Record) bool { return f.From.Port == 4004 && f.Kind != flow.New })
	if f.Kind != flow.Denied || f.Why() != "ingress of host endpoint up GlobalNetworkPolicy hosts rule 3" || f.Reason != "" {
		t.Errorf("denied at an interface: %s, %+v", f.Why(), f)
	}
	n.send(t, "10.42.1.2", "10.42.1.3:95", 4005, 1)
	f = r.flow("denial", func(f flow.Record) bool { return f.From.Port == 4005 && f.Kind != flow.New })
	if f.Kind != flow.Denied || f.Reason != "the interface is not known" || len(f.Decisions) > 0 {
		t.Errorf("denied, it is not known where: %+v", f)
	}
	// A packet was denied that is allowed now.
	n.send(t, "10.42.1.2", "10.42.1.3:97", 4003, 1)
	f = r.flow("denial", func(f flow.Record) bool { return f.From.Port == 4003 && f.Kind != flow.New })
	if f.Kind != flow.Denied || f.Verdict != flow.DeniedVerdict || f.Reason == "" || len(f.Decisions) > 0 {
		t.Errorf("denied by a policy that has changed: %+v", f)
	}
}

// Without a stream nothing is open, and policies' denials are not observed.
func TestOff(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t)
	rules := nettest.Run(t, n.ns, "nft", "list", "ruleset")
	if got := n.sockets(t); got != 0 {
		t.Errorf("%d sockets before", got)
	}
	first := n.follow(t)
	first.begun()
	one := n.sockets(t)
	second := n.follow(t)
	second.begun()
	if two := n.sockets(t); one == 0 || two != one {
		t.Errorf("%d sockets for a stream, %d for two", one, two)
	}
	first.stop()
	<-first.done
	n.send(t, "10.42.1.2", "10.42.1.3:80", 4000, 1)
	second.flow("flow of the other stream", func(f flow.Record) bool { return f.From.Port == 4000 })
	second.stop()
	<-second.done
	for end := time.Now().Add(30 * time.Second); n.sockets(t) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("sockets are left")
		}
	}
	n.policies.mu.Lock()
	defer n.policies.mu.Unlock()
	if n.policies.denied != nil {
		t.Error("denials are observed still")
	}
	if now := nettest.Run(t, n.ns, "nft", "list", "ruleset"); now != rules {
		t.Errorf("rules were changed: %s", now)
	}
}

// What is not observed is said: a family that no rule tracks, and interfaces outside of the node's IP layer.
func TestNotes(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t)
	n.records.set(map[string]string{"shop/web": "10.42.1.2"})
	n.records.all[0].Observed.Tap = true
	notes := func() string {
		for l := range n.read(t, nil).all() {
			if l.Begin != nil {
				return strings.Join(l.Begin.Notes, "\n")
			}
		}
		return ""
	}
	got := notes()
	for _, want := range []string{"IPv6 connections are not observed", "bypass the node's connection tracking: shop/web eth0"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "IPv4") {
		t.Errorf("IPv4 is tracked: %q", got)
	}
	nettest.Run(t, n.ns, "nft", "delete table ip t")
	if got := notes(); !strings.Contains(got, "IPv4 connections are not observed") {
		t.Errorf("%q", got)
	}
}

// settings are recorded settings of a node.
type settings map[string]string

func (s settings) Keep(name, value string) error {
	s[name] = value
	return nil
}

func (s settings) Kept(name string) (string, bool) {
	value, kept := s[name]
	return value, kept
}

func (s settings) Forget(name string) error {
	delete(s, name)
	return nil
}

// unforgetting are settings of an agent that is killed before it has forgotten one.
type unforgetting struct{ settings }

var errKilled = errors.New("killed")

func (unforgetting) Forget(string) error { return errKilled }

// run runs the observer until the returned function is called.
func (n *node) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.observer.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// until waits for a condition.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// With the level flows the last flows are kept, and packets are counted, until the level is another one.
func TestLevelFlows(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	kept := settings{}
	n := newNode(t, func(c *observer.Config) { c.Level, c.Settings = flow.LevelFlows, kept })
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	accounting := func() string {
		return strings.TrimSpace(nettest.Run(t, n.ns, "cat", "/proc/sys/net/netfilter/nf_conntrack_acct"))
	}
	if accounting() != "0" {
		t.Fatal("packets are counted before")
	}
	stop := n.run(t)
	until(t, "sockets", func() bool { return n.sockets(t) > 0 })
	if accounting() != "1" {
		t.Error("packets are not counted")
	}
	n.send(t, "10.42.1.2", "10.42.1.3:80", 4000, 1)
	past := map[string][]string{observer.ParameterSince: {time.Now().Add(-time.Hour).Format(time.RFC3339Nano)}}
	until(t, "flow in the past", func() bool {
		r := n.read(t, past)
		defer r.stop()
		found := false
		for l := range r.all() {
			found = found || l.Flow != nil && l.Flow.From.Port == 4000 && l.Flow.From.Name == "shop/web"
		}
		return found
	})
	later := map[string][]string{observer.ParameterSince: {time.Now().Add(time.Hour).Format(time.RFC3339Nano)}}
	for l := range n.read(t, later).all() {
		if l.Flow != nil {
			t.Errorf("a flow before the time: %+v", l.Flow)
		}
	}
	stop()
	until(t, "no sockets", func() bool { return n.sockets(t) == 0 })
	if accounting() != "1" {
		t.Error("packets are not counted while the agent is replaced")
	}
	c := observer.Config{
		Records: n.records, NS: n.ns, Level: flow.LevelOff, Settings: unforgetting{kept}, Log: slog.New(slog.DiscardHandler),
		Now: time.Now,
	}
	// An agent that is killed in between has restored the value, or the next one does.
	if err := observer.New(c).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, still := accounting(), kept["net/netfilter/nf_conntrack_acct"]; now != "0" && still != "0" {
		t.Errorf("killed: the value is %s, and recorded is %q", now, still)
	}
	nettest.Run(t, n.ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_acct=1")
	c.Settings = kept
	off := observer.New(c)
	for range 2 { // a value that is set later is not changed
		if err := off.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if accounting() != "0" {
		t.Error("packets are counted still")
	}
}

// Of more flows than an agent keeps one by one, the sums account for each.
func TestSums(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t, func(c *observer.Config) { c.Level, c.Settings = flow.LevelFlows, settings{} })
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	stop := n.run(t)
	defer stop()
	until(t, "sockets", func() bool { return n.sockets(t) > 0 })
	const made = 20000
	began := time.Now()
	n.send(t, "10.42.1.2", "10.42.1.3:80", 10000, made)
	past := map[string][]string{
		observer.ParameterSince:  {began.Add(-time.Hour).Format(time.RFC3339Nano)},
		observer.ParameterFilter: {`[{"field":"port","values":["80"]}]`},
	}
	var seen, lost, sums int
	until(t, "all flows are accounted for", func() bool {
		r := n.read(t, past)
		defer r.stop()
		seen, lost, sums = 0, 0, 0
		for l := range r.all() {
			switch {
			case l.Flow != nil && l.Flow.Kind == flow.New:
				if seen += int(l.Flow.Flows()); l.Flow.From.Name != "shop/web" || l.Flow.To.Name != "shop/db" {
					t.Fatalf("%+v", l.Flow)
				}
				if l.Flow.Count > 0 {
					sums++
				}
			case l.Lost != nil:
				lost += int(l.Lost.New)
			case l.Begin != nil && !l.Begin.From.IsZero():
				t.Fatalf("flows are kept since %s only", l.Begin.From)
			}
		}
		return seen+lost >= made
	})
	if seen+lost != made || sums == 0 {
		t.Errorf("%d seen, in %d sums, and %d lost of %d", seen, sums, lost, made)
	}
	t.Logf("%d seen, in %d sums, and %d lost of %d in %s", seen, sums, lost, made, time.Since(began))
}

// With the level denied nothing listens to connections.
func TestLevelDenied(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t, func(c *observer.Config) { c.Level, c.Settings = flow.LevelDenied, settings{} })
	n.records.set(map[string]string{"shop/web": "10.42.1.2"})
	stop := n.run(t)
	defer stop()
	observed := func() func(policy.DeniedPacket) {
		n.policies.mu.Lock()
		defer n.policies.mu.Unlock()
		return n.policies.denied
	}
	until(t, "denials", func() bool { return observed() != nil })
	if got := n.sockets(t); got != 0 {
		t.Errorf("%d sockets", got)
	}
	r := n.follow(t)
	r.begun()
	n.send(t, "10.42.1.2", "10.42.1.3:80", 4000, 1)
	r.flow("connection", func(f flow.Record) bool { return f.From.Port == 4000 })
	observed()(policy.DeniedPacket{Packet: nflog.Packet{Proto: 6, To: netip.MustParseAddrPort("10.42.1.2:80")}})
	r.flow("denial", func(f flow.Record) bool { return f.Kind == flow.Denied })
	r.stop()
	<-r.done
	until(t, "no sockets", func() bool { return n.sockets(t) == 0 })
	kinds := map[flow.Kind]int{}
	past := map[string][]string{observer.ParameterSince: {time.Now().Add(-time.Hour).Format(time.RFC3339Nano)}}
	for l := range n.read(t, past).all() {
		if l.Flow != nil {
			kinds[l.Flow.Kind]++
		}
	}
	if len(kinds) != 1 || kinds[flow.Denied] != 1 {
		t.Errorf("kept: %v", kinds)
	}
	if observed() == nil {
		t.Error("denials are not observed any more")
	}
}

// Of many connections each one is reported, or counted as lost, also if the reader is slow.
func TestFlood(t *testing.T) {
	t.Run("reader", func(t *testing.T) { flood(t, false) })
	t.Run("slow reader", func(t *testing.T) { flood(t, true) })
}

func flood(t *testing.T, slow bool) {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := newNode(t)
	// A busy host creates connections for longer than the kernel tracks them: ends would be among what is lost.
	nettest.Run(t, n.ns, "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=600")
	n.records.set(map[string]string{"shop/web": "10.42.1.2", "shop/db": "10.42.1.3"})
	r := n.follow(t)
	defer func() { r.stop(); <-r.done }()
	r.begun()
	const made, ports = 60000, 30000
	began := time.Now()
	if slow {
		r.mu.Lock()
	}
	for i := range made / ports {
		n.send(t, "10.42.1.2", fmt.Sprintf("10.42.1.3:%d", 80+i), 10000, ports)
	}
	took := time.Since(began)
	if slow {
		r.mu.Unlock()
	}
	seen, lost := 0, uint64(0)
	for late := time.After(3 * time.Minute); seen+int(lost) < made; {
		select {
		case l := <-r.lines:
			switch {
			case l.Flow != nil && l.Flow.Kind == flow.New:
				if seen++; l.Flow.From.Name != "shop/web" || l.Flow.To.Name != "shop/db" {
					t.Fatalf("%+v", l.Flow)
				}
			case l.Lost != nil:
				lost += l.Lost.New + l.Lost.Queue
			}
		case <-late:
			t.Fatalf("%d seen and %d lost of %d", seen, lost, made)
		}
	}
	if slow && lost == 0 {
		t.Error("the reader was not too slow: nothing is tested")
	}
	t.Logf("%d connections in %s: %d seen, %d lost", made, took, seen, lost)
	quiet := time.After(2 * lossPeriod)
	for {
		select {
		case l := <-r.lines:
			if l.Lost != nil || l.Flow != nil && l.Flow.Kind == flow.New {
				t.Fatalf("%d seen and %d lost of %d, and more: %+v", seen, lost, made, l)
			}
			continue
		case <-quiet:
		}
		break
	}
}

// lossPeriod is how often a stream reports lost flows.
const lossPeriod = time.Second
