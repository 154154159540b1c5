// SPDX-License-Identifier: Apache-2.0

package udp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Config configures a Path.
type Config struct {
	// NS is the namespace that device and socket are in; nil is the process's own.
	NS *netns.NS
	// Link is the TUN device, which must exist.
	Link string
	// Listen is the node's address and port in the underlay.
	Listen netip.AddrPort
	// Own is the device's address, the source of ICMP errors; without it there are none.
	Own netip.Addr
	Now func() time.Time
}

// Path forwards packets between a device and a socket. SetPeers may be called concurrently.
type Path struct {
	dev    device
	sock   socket
	table  atomic.Pointer[table]
	accept atomic.Pointer[acceptor]
	over   atomic.Bool
	stop   int
	raw    int
	stats  Stats
	cfg    Config
}

// Stats counts the packets of both directions.
type Stats struct {
	Sent, SentBytes, Received, ReceivedBytes atomic.Uint64
	// NoRoute counts packets to addresses of no peer, Expired those with an expired TTL, Malformed invalid packets.
	NoRoute, Expired, Malformed atomic.Uint64
	// Refused counts packets that a peer may not send, and those of senders that are no peer.
	Refused atomic.Uint64
	// Unsent counts packets that the socket refused, Unwritten those that the device refused. Errno is the socket's last
	// error.
	Unsent, Unwritten atomic.Uint64
	Errno             atomic.Uint32
}

func (s *Stats) unsent(n uint64, why unix.Errno) {
	s.Unsent.Add(n)
	s.Errno.Store(uint32(why))
}

// Open attaches to the device and opens the socket. No packet is forwarded before Run.
func Open(cfg Config) (*Path, error) {
	p := &Path{cfg: cfg, stop: -1, raw: -1}
	p.dev.fd, p.sock.fd = -1, -1
	p.SetPeers(nil, Accept{})
	err := cfg.NS.Do(func() error {
		var err error
		if p.dev, err = attach(cfg.Link); err != nil {
			p.dev.fd = -1
			return err
		}
		if p.sock, err = listen(cfg.Listen); err != nil {
			p.sock.fd = -1
			return err
		}
		if p.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return fmt.Errorf("raw socket: %w", err)
		}
		p.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
		return err
	})
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// SetPeers replaces all routes and accepted sources.
func (p *Path) SetPeers(peers []Peer, accept Accept) {
	p.accept.Store(newAcceptor(accept))
	p.table.Store(newTable(peers))
}

// Stats returns the path's counters.
func (p *Path) Stats() *Stats { return &p.stats }

// Run forwards packets until ctx ends or an error occurs, and then closes the path.
func (p *Path) Run(ctx context.Context) error {
	defer p.Close()
	ensurePlaces()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &encap{
		dev: p.dev, stop: p.stop, raw: p.raw, table: &p.table, out: newBatchSender(&p.sock, &p.stats), stats: &p.stats,
	}
	o.answer = &answerer{own: p.cfg.Own, now: p.cfg.Now}
	back := p.sock // each direction has its own state of the socket
	w := &decap{
		dev: p.dev, sock: &p.sock, over: &p.over, table: &p.table, accept: &p.accept, batch: newBatchSender(&back, &p.stats),
		stats: &p.stats,
	}
	w.answer = &answerer{own: p.cfg.Own, now: p.cfg.Now}
	w.gro.withUDP = p.dev.joinsUDP
	var parts sync.WaitGroup
	errs := make([]error, 2)
	for i, run := range []func() error{o.run, w.run} {
		parts.Go(func() {
			errs[i] = run()
			cancel()
		})
	}
	<-ctx.Done()
	p.over.Store(true)
	p.sock.wake()
	_, err := unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	parts.Wait()
	if err = errors.Join(errs[0], errs[1], err); err != nil {
		return fmt.Errorf("udp tunnel %s: %w", p.cfg.Link, err)
	}
	return nil
}

// Close releases the resources of a path on which Run was not called.
func (p *Path) Close() {
	for _, fd := range []*int{&p.dev.fd, &p.sock.fd, &p.stop, &p.raw} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}
