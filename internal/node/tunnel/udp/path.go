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

// Config is what a path needs.
type Config struct {
	// NS is the namespace that device and socket are in; nil is the process's own.
	NS *netns.NS
	// Link is the TUN device, which must be there.
	Link string
	// Listen is the node's end of the wire.
	Listen netip.AddrPort
	// Own is the device's address, from which senders are answered; none: they are not.
	Own netip.Addr
	Now func() time.Time
}

// Path carries packets between a device and a socket. SetPeers may be called at any time.
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

// Stats counts packets, of both directions.
type Stats struct {
	Sent, SentBytes, Received, ReceivedBytes atomic.Uint64
	// NoRoute counts packets to nobody's pods, Expired those whose TTL ended, Malformed what is no packet.
	NoRoute, Expired, Malformed atomic.Uint64
	// Refused counts what a peer may not send, and what comes from nobody that is one.
	Refused atomic.Uint64
	// Unsent counts what the wire did not take, Unwritten what the device did not. Errno is the wire's last reason.
	Unsent, Unwritten atomic.Uint64
	Errno             atomic.Uint32
}

func (s *Stats) unsent(n uint64, why unix.Errno) {
	s.Unsent.Add(n)
	s.Errno.Store(uint32(why))
}

// Open attaches to the device and opens the socket. Nothing flows before Run.
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

// SetPeers says where packets go from now on, and what is accepted, all of it.
func (p *Path) SetPeers(peers []Peer, accept Accept) {
	p.accept.Store(newAcceptor(accept))
	p.table.Store(newTable(peers))
}

// Stats are the path's counts.
func (p *Path) Stats() *Stats { return &p.stats }

// Run carries packets until ctx ends, or an error stands in the way: then nothing flows any more. The path is closed
// when it returns.
func (p *Path) Run(ctx context.Context) error {
	defer p.Close()
	makeRoom()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := &outward{
		dev: p.dev, stop: p.stop, raw: p.raw, table: &p.table, mail: newMailer(&p.sock, &p.stats), stats: &p.stats,
	}
	o.answer = &answerer{own: p.cfg.Own, now: p.cfg.Now}
	back := p.sock // what one direction learns of the socket is not the other's
	w := &inward{
		dev: p.dev, sock: &p.sock, over: &p.over, table: &p.table, accept: &p.accept, mail: newMailer(&back, &p.stats),
		stats: &p.stats,
	}
	w.answer = &answerer{own: p.cfg.Own, now: p.cfg.Now}
	w.join.withUDP = p.dev.joinsUDP
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

// Close gives back what Open took, for a path that does not run.
func (p *Path) Close() {
	for _, fd := range []*int{&p.dev.fd, &p.sock.fd, &p.stop, &p.raw} {
		if *fd >= 0 {
			_ = unix.Close(*fd)
			*fd = -1
		}
	}
}
