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
	// packets are those of the machine's flow, lines what it answered on the connection; failed is how that ended.
	packets []arrival
	lines   []arrival
	failed  error
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

// talk calls the machine, and sends a line each 10 ms; it notes the answers until ctx ends, or the connection does.
func (p *peer) talk(ctx context.Context, ns *netns.NS, addr netip.AddrPort) error {
	var conn net.Conn
	var last error
	err := until(ctx, "peer", func() bool { // the guest begins to listen
		last = ns.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", addr.String())
			return err
		})
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
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
	go func() {
		in := bufio.NewScanner(conn)
		for n := 0; in.Scan(); n++ {
			at := time.Now()
			if in.Text() != strconv.Itoa(n) {
				p.fails(ctx, fmt.Errorf("line %d came back as %q", n, in.Text()))
				return
			}
			p.mu.Lock()
			p.lines = append(p.lines, arrival{n, at})
			p.mu.Unlock()
		}
		p.fails(ctx, fmt.Errorf("the connection ended: %w", cmpErr(in.Err())))
	}()
	return nil
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

// since tells how many packets and lines have arrived since a time, and how the connection failed.
func (p *peer) since(t time.Time) (packets, lines int, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(after(p.packets, t)), len(after(p.lines, t)), p.failed
}

// after are the arrivals behind a time.
func after(all []arrival, t time.Time) []arrival {
	i := len(all)
	for i > 0 && all[i-1].at.After(t) {
		i--
	}
	return all[i:]
}

// gap is what a migration was for the peer.
type gap struct {
	first    time.Duration // from the machine's going on to its first packet
	blackout time.Duration // from its last packet to that
	line     time.Duration // the longest time between two lines around it
	lost     int           // packets that the machine has sent and that never came
}

// around looks at what arrived around the time when the machine went on.
func (p *peer) around(resumed time.Time, before time.Duration) gap {
	p.mu.Lock()
	defer p.mu.Unlock()
	var g gap
	behind := after(p.packets, resumed)
	ahead := p.packets[:len(p.packets)-len(behind)]
	if len(behind) > 0 {
		g.first = behind[0].at.Sub(resumed)
	}
	if len(behind) > 0 && len(ahead) > 0 {
		last := ahead[len(ahead)-1]
		g.blackout, g.lost = behind[0].at.Sub(last.at), behind[0].n-last.n-1
	}
	lines := after(p.lines, resumed.Add(-before))
	for i := 1; i < len(lines); i++ {
		g.line = max(g.line, lines[i].at.Sub(lines[i-1].at))
	}
	return g
}
