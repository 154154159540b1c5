// SPDX-License-Identifier: Apache-2.0

package downtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// Peer is the VM's peer: it records arrival times.
type Peer struct {
	// Now is the clock.
	Now func() time.Time

	mu sync.Mutex
	// packets are the VM's UDP flow, replies those on one connection, stream what the VM sends on another; failed is the
	// first error.
	packets, replies, stream arrivals
	failed                   error
}

// arrivals are the arrivals of one kind.
type arrivals struct {
	started bool
	all     []arrival
}

// arrival is the arrival of a number.
type arrival struct {
	n  int
	at time.Time
}

const (
	// lineInterval is the interval of lines.
	lineInterval = 10 * time.Millisecond
	// timeout is the timeout for a VM to reply or accept a connection, dialTime that of one attempt.
	timeout, dialTime = time.Minute, 10 * time.Second
)

// Listen receives the VM's packets until ctx ends.
func (p *Peer) Listen(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(ctx, "udp", addr.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	p.start(&p.packets)
	go func() {
		b := make([]byte, 2048)
		for {
			size, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			at := p.Now()
			if n, err := strconv.Atoi(strings.TrimSpace(string(b[:size]))); err == nil {
				p.add(&p.packets, n, at)
			}
		}
	}()
	return nil
}

// dial connects to the VM, and retries until it listens.
func dial(ctx context.Context, ns *netns.NS, addr netip.AddrPort) (conn net.Conn, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err = ns.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: dialTime}).DialContext(dialCtx, "tcp", addr.String())
			return err
		})
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			return conn, nil
		}
		select {
		case <-dialCtx.Done():
			return nil, fmt.Errorf("peer: %w: %w", err, dialCtx.Err())
		case <-time.After(lineInterval):
		}
	}
}

// Echo sends a line each 10 ms on a connection, and receives the replies until ctx or the connection ends.
func (p *Peer) Echo(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	conn, err := dial(ctx, ns, addr)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(lineInterval)
		defer tick.Stop()
		for n := 0; ; n++ {
			if _, err := fmt.Fprintln(conn, n); err != nil {
				p.fail(ctx, err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	p.start(&p.replies)
	go p.read(ctx, conn, &p.replies)
	return nil
}

// ReadStream receives the VM's lines on a connection. It only sends a greeting, unless that is empty.
func (p *Peer) ReadStream(ctx context.Context, ns *netns.NS, addr netip.AddrPort, greeting string) error {
	conn, err := dial(ctx, ns, addr)
	if err != nil {
		return err
	}
	if greeting != "" {
		if _, err := fmt.Fprintln(conn, greeting); err != nil {
			return fmt.Errorf("peer: %w", err)
		}
	}
	p.start(&p.stream)
	go p.read(ctx, conn, &p.stream)
	return nil
}

// read receives consecutively numbered lines.
func (p *Peer) read(ctx context.Context, conn net.Conn, into *arrivals) {
	in := bufio.NewScanner(conn)
	for n := 0; in.Scan(); n++ {
		at := p.Now()
		if in.Text() != strconv.Itoa(n) {
			p.fail(ctx, fmt.Errorf("line %d came as %q", n, in.Text()))
			return
		}
		p.add(into, n, at)
	}
	p.fail(ctx, fmt.Errorf("a connection ended: %w", endError(in.Err())))
}

func endError(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

func (p *Peer) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *Peer) start(a *arrivals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.started = true
}

func (p *Peer) add(a *arrivals, n int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.all = append(a.all, arrival{n, at})
}

// errSilent: the VM sends nothing.
var errSilent = errors.New("the VM sends nothing")

// minArrivals is the number of arrivals of each kind that Await waits for.
const minArrivals = 20

// Await waits until some of each started kind have arrived since a time, for at most a minute.
func (p *Peer) Await(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if enough, err := p.received(since); err != nil || enough {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errSilent, ctx.Err())
		case <-time.After(lineInterval / 2):
		}
	}
}

func (p *Peer) received(since time.Time) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range []arrivals{p.packets, p.replies, p.stream} {
		if a.started && len(after(a.all, since)) < minArrivals {
			return false, p.failed
		}
	}
	return true, p.failed
}
