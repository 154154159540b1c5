// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// Endpoint is somebody who can be reached.
type Endpoint struct {
	Name  string
	NS    *netns.NS
	Addrs []netip.Addr
	// Problem says why the endpoint cannot be tried; all its pairs then fail with it, in the families of Addrs or, when
	// there are none, in those that the other endpoint has.
	Problem string
	// Guest is set where a machine of its own is behind the addresses, not a namespace.
	Guest Guest
}

// Guest is an endpoint whose packets are sent and answered inside a machine.
type Guest interface {
	// Port is where it answers; 0 where nobody can ask it in that way.
	Port(p Proto) uint16
	// Try has it try others, and gives an error, or nil, for each.
	Try(ctx context.Context, targets []Target) []error
}

// Target is whom a guest tries.
type Target struct {
	Proto Proto
	To    netip.AddrPort
	Name  string
}

// Config says what to try.
type Config struct {
	Endpoints []Endpoint
	// Timeout bounds one pair; 2 s when 0.
	Timeout time.Duration
	// Parallel is how many pairs are tried at a time; 64 when 0.
	Parallel int
	// Expect says of each flow whether it should arrive; nil: all should. A pair should reach when all of its flows
	// should.
	Expect func(context.Context, []Flow) ([]bool, error)
}

// Flow is what is sent from one endpoint to one address of another.
type Flow struct {
	From, To string
	Proto    Proto
	// Src is an address of the sender of the same family: of several, the first. The port of Dst is 0 for ICMP.
	Src netip.Addr
	Dst netip.AddrPort
}

type pair struct {
	from, to int
	proto    Proto
	err      error
	denied   bool // it should not reach
}

// Run tries every pair. It fails only when it cannot try; pairs that do not reach are in the report.
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
			wg.Go(func() { p.tryGuest(ctx, i, pairs) })
		}
	}
	for range min(c.Parallel, len(pairs)) {
		wg.Go(func() {
			for q := range work {
				q.err = p.try(ctx, *q)
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
		return Report{}, fmt.Errorf("reach: %w", err)
	}
	if err := p.expect(ctx, c, pairs); err != nil {
		return Report{}, fmt.Errorf("reach: what is expected: %w", err)
	}
	return report(c, pairs), nil
}

// expect notes which pairs should not reach.
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
				if from.speaks(proto, to) && to.speaks(proto, from) && to.asked(proto) {
					pairs = append(pairs, pair{from: i, to: j, proto: proto})
				}
			}
		}
	}
	return pairs
}

// speaks tells whether e has an address of the protocol's family, or might have had one if it were well.
func (e Endpoint) speaks(p Proto, other Endpoint) bool {
	if e.Problem != "" && len(e.Addrs) == 0 {
		return len(other.Addrs) == 0 || len(other.family(p)) > 0
	}
	return len(e.family(p)) > 0
}

// asked tells whether others can ask it in some way.
func (e Endpoint) asked(p Proto) bool {
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
			r.Leaked = append(r.Leaked, Failure{From: from, To: to, Proto: p.proto, Error: "arrives, though policies deny it"})
		}
	}
	return r
}

// prober tries pairs.
type prober struct {
	endpoints []Endpoint
	listeners listeners
	timeout   time.Duration
}

func (p prober) try(ctx context.Context, q pair) error {
	from, to := p.endpoints[q.from], p.endpoints[q.to]
	for _, e := range []Endpoint{to, from} {
		if e.Problem != "" {
			return errors.New(e.Problem)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for _, addr := range to.family(q.proto) {
		if err := p.tryAddr(ctx, from, to, addr, q.proto); err != nil {
			return fmt.Errorf("to %s: %w", addr, tidy(err))
		}
	}
	return nil
}

func (p prober) tryAddr(ctx context.Context, from, to Endpoint, addr netip.Addr, proto Proto) error {
	if proto.name() == "icmp" {
		return ping(ctx, from.NS, addr)
	}
	l, ok := p.listeners[listenKey{to.Name, addr, proto}]
	if !ok {
		return errors.New("nobody listens")
	}
	if l.err != nil {
		return l.err
	}
	if proto.name() == "tcp" {
		return tryTCP(ctx, from.NS, l.addr, to.Name)
	}
	return tryUDP(ctx, from.NS, l.addr, to.Name)
}
