// SPDX-License-Identifier: Apache-2.0

// Package serve answers guests on sockets that somebody else has opened. It needs no rights: what it says are values,
// who it says them to is bound to the sockets.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// Sockets are those of one wire; nil where nothing is said.
type Sockets struct {
	DHCP4, DHCP6, RA *os.File
}

// Close closes them.
func (s Sockets) Close() error {
	var errs []error
	for _, f := range []*os.File{s.DHCP4, s.DHCP6, s.RA} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Wire is a guest's wire with its sockets.
type Wire struct {
	Guest   model.Guest
	Sockets Sockets
}

// Config is what all wires have.
type Config struct {
	// StartedDir is where it is noted, for each wire, that DHCP is served: KubeVirt's launcher looks there. "" is nowhere.
	StartedDir string
	Log        *slog.Logger
}

// mark is what stands in a note of ours; KubeVirt's are empty.
const mark = "weft-guest\n"

// Run answers on all wires until the context ends, or until one of them cannot be heard any more. It closes the
// sockets.
func (c Config) Run(ctx context.Context, wires []Wire) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for _, w := range wires {
		loops, err := c.loops(w)
		if err != nil {
			once.Do(func() { first = err })
			stop()
			break
		}
		for _, l := range loops {
			group.Go(func() {
				if err := l.run(ctx); err != nil {
					once.Do(func() { first = err })
					stop()
				}
			})
		}
	}
	group.Wait()
	for _, w := range wires {
		_ = w.Sockets.Close()
	}
	return first
}

// loop is one socket with what is done for it.
type loop struct {
	conn  net.PacketConn
	serve func(ctx context.Context) error
}

// run serves until the context ends.
func (l loop) run(ctx context.Context) error {
	closed := context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	defer closed()
	defer func() { _ = l.conn.Close() }()
	err := l.serve(ctx)
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (c Config) loops(w Wire) ([]loop, error) {
	var out []loop
	fail := func(err error) ([]loop, error) {
		for _, l := range out {
			_ = l.conn.Close()
		}
		return nil, fmt.Errorf("interface %s: %w", w.Guest.Interface, err)
	}
	ours, err := c.started(w.Guest)
	if err != nil {
		return fail(err)
	}
	log := c.Log.With("interface", w.Guest.Interface)
	if !ours {
		log.Info("somebody else serves DHCP there already")
	}
	for _, s := range []struct {
		file  *os.File
		wants bool
		serve func(net.PacketConn) func(context.Context) error
	}{
		{w.Sockets.DHCP4, ours, func(p net.PacketConn) func(context.Context) error { return dhcp4Loop(w.Guest, p, log) }},
		{w.Sockets.DHCP6, ours, func(p net.PacketConn) func(context.Context) error { return dhcp6Loop(w.Guest, p, log) }},
		{w.Sockets.RA, true, func(p net.PacketConn) func(context.Context) error { return raLoop(w.Guest, p, log) }},
	} {
		if s.file == nil || !s.wants {
			continue
		}
		conn, err := net.FilePacketConn(s.file)
		if err != nil {
			return fail(err)
		}
		out = append(out, loop{conn: conn, serve: s.serve(conn)})
	}
	return out, nil
}

// started notes that DHCP is served on a wire; ours is false where somebody else has noted it.
func (c Config) started(g model.Guest) (ours bool, err error) {
	if c.StartedDir == "" || g.DHCP4 == nil && g.DHCP6 == nil {
		return true, nil
	}
	path := filepath.Join(c.StartedDir, "dhcp_started-"+g.PodLink)
	if have, err := os.ReadFile(path); err == nil && string(have) != mark {
		return false, nil
	}
	if err := os.WriteFile(path, []byte(mark), 0o604); err != nil {
		return false, fmt.Errorf("note that DHCP is served: %w", err)
	}
	return true, nil
}

// addrOf is where a packet came from, without the link: the socket is bound to it, and the net package does not know
// links with numbers above 1<<24, which weft's have, where it runs in another namespace.
func addrOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().WithZone("")
	case *net.IPAddr:
		ip, _ := netip.AddrFromSlice(a.IP)
		return ip
	}
	return netip.Addr{}
}
