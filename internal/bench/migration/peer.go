// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// peer is who the machine speaks to: it notes when what arrives.
type peer struct {
	mu sync.Mutex
	// packets are those of the machine's flow, lines what it answered on one connection, words what it said by itself on another;
	// failed is how one of them ended.
	packets, lines, words []arrival
	failed                error
}

// arrival is a numbered thing that arrived.
type arrival struct {
	n  int
	at time.Time
}

// linePause is between two lines.
const linePause = 10 * time.Millisecond

// listen takes the machine's packets, until ctx ends.
func (p *peer) listen(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = new(net.ListenConfig).ListenPacket(ctx, "udp", addr.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			size, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			at := time.Now()
			if n, err := strconv.Atoi(strings.TrimSpace(string(b[:size]))); err == nil {
				p.mu.Lock()
				p.packets = append(p.packets, arrival{n, at})
				p.mu.Unlock()
			}
		}
	}()
	return nil
}

// dial calls the machine, which perhaps only begins to listen.
func dial(ctx context.Context, ns *netns.NS, addr netip.AddrPort) (conn net.Conn, err error) {
	var last error
	err = until(ctx, "peer", func() bool {
		last = ns.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr.String())
			return err
		})
		return last == nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, last)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// talk sends a line each 10 ms on a connection, and takes the answers, until ctx ends or the connection does.
func (p *peer) talk(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
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
	go p.read(ctx, conn, &p.lines)
	return nil
}

// hear takes what the machine says on a connection, and says nothing itself.
func (p *peer) hear(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	conn, err := dial(ctx, ns, addr)
	if err == nil {
		go p.read(ctx, conn, &p.words)
	}
	return err
}

// read takes numbered lines, of which none may be missing.
func (p *peer) read(ctx context.Context, conn net.Conn, into *[]arrival) {
	in := bufio.NewScanner(conn)
	for n := 0; in.Scan(); n++ {
		at := time.Now()
		if in.Text() != strconv.Itoa(n) {
			p.fails(ctx, fmt.Errorf("line %d came as %q", n, in.Text()))
			return
		}
		p.mu.Lock()
		*into = append(*into, arrival{n, at})
		p.mu.Unlock()
	}
	p.fails(ctx, fmt.Errorf("a connection ended: %w", cmpErr(in.Err())))
}

func cmpErr(err error) error {
	if err == nil {
		return net.ErrClosed
	}
	return err
}

func (p *peer) fails(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

// since tells how many of each have arrived since a time, and how a connection failed.
func (p *peer) since(t time.Time) (least int, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(len(after(p.packets, t)), len(after(p.lines, t)), len(after(p.words, t))), p.failed
}

// after are the arrivals behind a time.
func after(all []arrival, t time.Time) []arrival {
	i := len(all)
	for i > 0 && all[i-1].at.After(t) {
		i--
	}
	return all[i:]
}

// around looks at what arrived around the time when the machine went on.
func (p *peer) around(resumed time.Time, before time.Duration) Gap {
	p.mu.Lock()
	defer p.mu.Unlock()
	var g Gap
	behind := after(p.packets, resumed)
	ahead := p.packets[:len(p.packets)-len(behind)]
	if len(behind) > 0 {
		g.First = behind[0].at.Sub(resumed)
	}
	if len(behind) > 0 && len(ahead) > 0 {
		last := ahead[len(ahead)-1]
		g.Blackout, g.Lost = behind[0].at.Sub(last.at), behind[0].n-last.n-1
	}
	g.Answers, g.Stream = longest(after(p.lines, resumed.Add(-before))), longest(after(p.words, resumed.Add(-before)))
	return g
}

// longest is the longest time between two arrivals.
func longest(all []arrival) (out time.Duration) {
	for i := 1; i < len(all); i++ {
		out = max(out, all[i].at.Sub(all[i-1].at))
	}
	return out
}
