// SPDX-License-Identifier: Apache-2.0

package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// Endpoint is a pod, node or VM.
type Endpoint struct {
	Name  string
	NS    *netns.NS
	Addrs []netip.Addr
	// Problem is set if the endpoint cannot be probed. All its pairs fail with it, in the families of Addrs or, if there
	// are none, in those of the other endpoint.
	Problem string
	// Guest is set if the addresses belong to a VM instead of a namespace.
	Guest Guest
}

// Guest is the guest of a VM, which sends and replies itself.
type Guest interface {
	// Port returns the port at which the guest replies, or 0 if it does not reply to this protocol.
	Port(p Proto) uint16
	// Probe probes targets from inside the guest, and returns an error, or nil, for each.
	Probe(ctx context.Context, targets []Target) []error
}

// Target is an address that a guest probes.
type Target struct {
	Proto Proto
	To    netip.AddrPort
	Name  string
}

// Config configures Run.
type Config struct {
	Endpoints []Endpoint
	// Timeout bounds one pair; 2 s if 0.
	Timeout time.Duration
	// Parallel is the number of pairs that are probed in parallel; 64 if 0.
	Parallel int
	// Expect reports for each flow whether it should be allowed; if nil, all should. A pair should be reachable if all of
	// its flows should be allowed.
	Expect func(context.Context, []Flow) ([]bool, error)
}

// Flow is the traffic from one endpoint to one address of another.
type Flow struct {
	From, To string
	Proto    Proto
	// Src is the sender's first address of the same family. The port of Dst is 0 for ICMP.
	Src netip.Addr
	Dst netip.AddrPort
}

type pair struct {
	from, to int
	proto    Proto
	err      error
	denied   bool // policies deny it
}

// errNoListener means that an endpoint does not listen at an address.
var errNoListener = errors.New("no listener")

// Run probes every pair. Pairs that are not reachable are in the report; an error means that probing failed.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Parallel == 0 {
		c.Parallel = 64
	}
	listeners, err := listenAll(c.Endpoints, c.Timeout)
	if err != nil {
		return Report{}, err
	}
	defer listeners.close()
	pairs := pairsOf(c.Endpoints)
	p := prober{endpoints: c.Endpoints, listeners: listeners, timeout: c.Timeout}
	work := make(chan *pair)
	var wg sync.WaitGroup
	for i, e := range c.Endpoints {
		if e.Guest != nil {
			wg.Go(func() { p.probeFromGuest(ctx, i, pairs) })
		}
	}
	for range min(c.Parallel, len(pairs)) {
		wg.Go(func() {
			for q := range work {
				q.err = p.probe(ctx, *q)
			}
		})
	}
	for i := range pairs {
		if c.Endpoints[pairs[i].from].Guest == nil {
			work <- &pairs[i]
		}
	}
	close(work)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return Report{}, fmt.Errorf("connectivity: %w", err)
	}
	if err := p.expect(ctx, c, pairs); err != nil {
		return Report{}, fmt.Errorf("connectivity: expected results: %w", err)
	}
	return report(c, pairs), nil
}

// expect marks the pairs that policies deny.
func (p prober) expect(ctx context.Context, c Config, pairs []pair) error {
	if c.Expect == nil {
		return nil
	}
	var flows []Flow
	var of []*pair
	for i := range pairs {
		q := &pairs[i]
		from, to := c.Endpoints[q.from], c.Endpoints[q.to]
		src := from.family(q.proto)
		if len(src) == 0 {
			continue // it has no network
		}
		for _, addr := range to.family(q.proto) {
			dst := netip.AddrPortFrom(addr, p.listeners[listenKey{to.Name, addr, q.proto}].addr.Port())
			flows, of = append(flows, Flow{From: from.Name, To: to.Name, Proto: q.proto, Src: src[0], Dst: dst}), append(of, q)
		}
	}
	verdicts, err := c.Expect(ctx, flows)
	if err != nil {
		return err
	}
	for i, ok := range verdicts {
		of[i].denied = of[i].denied || !ok
	}
	return nil
}

func pairsOf(endpoints []Endpoint) []pair {
	var pairs []pair
	for i, from := range endpoints {
		for j, to := range endpoints {
			if i == j {
				continue
			}
			for _, proto := range Protos() {
				if from.hasFamily(proto, to) && to.hasFamily(proto, from) && to.replies(proto) {
					pairs = append(pairs, pair{from: i, to: j, proto: proto})
				}
			}
		}
	}
	return pairs
}

// hasFamily reports whether e has an address of the protocol's family. An endpoint with a problem and without addresses
// is assumed to have the families of the other endpoint.
func (e Endpoint) hasFamily(p Proto, other Endpoint) bool {
	if e.Problem != "" && len(e.Addrs) == 0 {
		return len(other.Addrs) == 0 || len(other.family(p)) > 0
	}
	return len(e.family(p)) > 0
}

// replies reports whether the endpoint replies to a protocol.
func (e Endpoint) replies(p Proto) bool {
	return e.Guest == nil || e.Problem != "" || p.name() == "icmp" || e.Guest.Port(p) != 0
}

func (e Endpoint) family(p Proto) []netip.Addr {
	var out []netip.Addr
	for _, a := range e.Addrs {
		if a.Is6() == p.is6() {
			out = append(out, a)
		}
	}
	return out
}

func report(c Config, pairs []pair) Report {
	r := Report{Pairs: len(pairs), Failed: []Failure{}, Cells: make([][]Cell, len(c.Endpoints))}
	for i, e := range c.Endpoints {
		r.Names = append(r.Names, e.Name)
		r.Cells[i] = make([]Cell, len(c.Endpoints))
	}
	for _, p := range pairs {
		from, to := c.Endpoints[p.from].Name, c.Endpoints[p.to].Name
		cell := &r.Cells[p.from][p.to]
		cell.Pairs++
		if p.err != nil {
			r.Failed = append(r.Failed, Failure{From: from, To: to, Proto: p.proto, Error: p.err.Error(), Expected: !p.denied})
			if p.denied {
				cell.Denied++
				r.Denied++
			}
			continue
		}
		cell.Reached++
		r.Reached++
		if p.denied {
			cell.Leaked++
			r.Leaked = append(r.Leaked, Failure{From: from, To: to, Proto: p.proto, Error: "reachable, but denied by policies"})
		}
	}
	return r
}

// prober probes pairs.
type prober struct {
	endpoints []Endpoint
	listeners listeners
	timeout   time.Duration
}

func (p prober) probe(ctx context.Context, q pair) error {
	from, to := p.endpoints[q.from], p.endpoints[q.to]
	for _, e := range []Endpoint{to, from} {
		if e.Problem != "" {
			return errors.New(e.Problem)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for _, addr := range to.family(q.proto) {
		if err := p.probeAddr(ctx, from, to, addr, q.proto); err != nil {
			return fmt.Errorf("to %s: %w", addr, shortError(err))
		}
	}
	return nil
}

func (p prober) probeAddr(ctx context.Context, from, to Endpoint, addr netip.Addr, proto Proto) error {
	if proto.name() == "icmp" {
		return ping(ctx, from.NS, addr)
	}
	l, ok := p.listeners[listenKey{to.Name, addr, proto}]
	if !ok {
		return errNoListener
	}
	if l.err != nil {
		return l.err
	}
	if proto.name() == "tcp" {
		return probeTCP(ctx, from.NS, l.addr, to.Name)
	}
	return probeUDP(ctx, from.NS, l.addr, to.Name)
}
