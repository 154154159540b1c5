// SPDX-License-Identifier: Apache-2.0

package gap

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

// Peer is who the machine speaks to: it notes when what arrives.
type Peer struct {
	// Now is the clock.
	Now func() time.Time

	mu sync.Mutex
	// packets are those of the machine's flow, lines what it answered on one connection, words what it said by itself on
	// another; failed is how one of them ended.
	packets, lines, words arrivals
	failed                error
}

// arrivals are what arrived of one kind, and whether anything is to.
type arrivals struct {
	begun bool
	all   []arrival
}

// arrival is a numbered thing that arrived.
type arrival struct {
	n  int
	at time.Time
}

const (
	// linePause is between two lines.
	linePause = 10 * time.Millisecond
	// patience is how long a machine may take until it answers a call, dialTime one call.
	patience, dialTime = time.Minute, 10 * time.Second
)

// Listen takes the machine's packets, until ctx ends.
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
	p.begin(&p.packets)
	go func() {
		b := make([]byte, 2048)
		for {
			size, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			at := p.Now()
			if n, err := strconv.Atoi(strings.TrimSpace(string(b[:size]))); err == nil {
				p.note(&p.packets, n, at)
			}
		}
	}()
	return nil
}

// dial calls the machine, which perhaps only begins to listen.
func dial(ctx context.Context, ns *netns.NS, addr netip.AddrPort) (conn net.Conn, err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err = ns.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: dialTime}).DialContext(limited, "tcp", addr.String())
			return err
		})
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			return conn, nil
		}
		select {
		case <-limited.Done():
			return nil, fmt.Errorf("peer: %w: %w", err, limited.Err())
		case <-time.After(linePause):
		}
	}
}

// Talk sends a line each 10 ms on a connection, and takes the answers, until ctx ends or the connection does.
func (p *Peer) Talk(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	conn, err := dial(ctx, ns, addr)
	if err != nil {
		return err
	}
	go func() {
		tick := time.NewTicker(linePause)
		defer tick.Stop()
		for n := 0; ; n++ {
			if _, err := fmt.Fprintln(conn, n); err != nil {
				p.fails(ctx, err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	p.begin(&p.lines)
	go p.read(ctx, conn, &p.lines)
	return nil
}

// Hear takes what the machine says on a connection. It says a greeting first, unless that is empty, and nothing more.
func (p *Peer) Hear(ctx context.Context, ns *netns.NS, addr netip.AddrPort, greeting string) error {
	conn, err := dial(ctx, ns, addr)
	if err != nil {
		return err
	}
	if greeting != "" {
		if _, err := fmt.Fprintln(conn, greeting); err != nil {
			return fmt.Errorf("peer: %w", err)
		}
	}
	p.begin(&p.words)
	go p.read(ctx, conn, &p.words)
	return nil
}

// read takes numbered lines, of which none may be missing.
func (p *Peer) read(ctx context.Context, conn net.Conn, into *arrivals) {
	in := bufio.NewScanner(conn)
	for n := 0; in.Scan(); n++ {
		at := p.Now()
		if in.Text() != strconv.Itoa(n) {
			p.fails(ctx, fmt.Errorf("line %d came as %q", n, in.Text()))
			return
		}
		p.note(into, n, at)
	}
	p.fails(ctx, fmt.Errorf("a connection ended: %w", cmpErr(in.Err())))
}

func cmpErr(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

func (p *Peer) fails(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *Peer) begin(a *arrivals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.begun = true
}

func (p *Peer) note(a *arrivals, n int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a.all = append(a.all, arrival{n, at})
}

// errSilent is a machine of whom nothing is heard.
var errSilent = errors.New("nothing is heard of the machine")

// few is how many of each kind must have arrived for the machine to count as heard.
const few = 20

// Await waits until some of each kind that was begun have arrived since a time, a minute at most.
func (p *Peer) Await(ctx context.Context, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if heard, err := p.heard(since); err != nil || heard {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errSilent, ctx.Err())
		case <-time.After(linePause / 2):
		}
	}
}

func (p *Peer) heard(since time.Time) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range []arrivals{p.packets, p.lines, p.words} {
		if a.begun && len(after(a.all, since)) < few {
			return false, p.failed
		}
	}
	return true, p.failed
}
