// SPDX-License-Identifier: Apache-2.0

// Package serve runs DHCP, DHCPv6 and router advertisements for guests, on sockets that another process has opened. It
// needs no capabilities: each socket is bound to the link of one guest.
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

// Sockets are the sockets of one interface; nil where a protocol is not served.
type Sockets struct {
	DHCP4, DHCP6, RA *os.File
}

// Close closes the sockets.
func (s Sockets) Close() error {
	var errs []error
	for _, f := range []*os.File{s.DHCP4, s.DHCP6, s.RA} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Interface is a guest's interface and the sockets that serve it.
type Interface struct {
	Guest   model.GuestConfig
	Sockets Sockets
}

// Config configures Run.
type Config struct {
	// StartedDir is the directory of the marker files, one for each interface, by which KubeVirt's launcher knows that DHCP
	// is served. If it is empty, Run writes none.
	StartedDir string
	Log        *slog.Logger
}

// mark is the content of weft's marker files; KubeVirt's are empty.
const mark = "weft-guest\n"

// Run serves all interfaces until the context ends or reading one of the sockets fails. It closes the sockets.
func (c Config) Run(ctx context.Context, interfaces []Interface) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var once sync.Once
	var first error
	for _, w := range interfaces {
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
	for _, w := range interfaces {
		_ = w.Sockets.Close()
	}
	return first
}

// loop is one socket and the loop that serves it.
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

func (c Config) loops(w Interface) ([]loop, error) {
	var out []loop
	fail := func(err error) ([]loop, error) {
		for _, l := range out {
			_ = l.conn.Close()
		}
		return nil, fmt.Errorf("interface %s: %w", w.Guest.Interface, err)
	}
	ours, err := c.markStarted(w.Guest)
	if err != nil {
		return fail(err)
	}
	log := c.Log.With("interface", w.Guest.Interface)
	if !ours {
		log.Info("DHCP is served by another server already")
	}
	for _, s := range []struct {
		file   *os.File
		serves bool
		serve  func(net.PacketConn) func(context.Context) error
	}{
		{w.Sockets.DHCP4, ours, func(p net.PacketConn) func(context.Context) error { return dhcp4Loop(w.Guest, p, log) }},
		{w.Sockets.DHCP6, ours, func(p net.PacketConn) func(context.Context) error { return dhcp6Loop(w.Guest, p, log) }},
		{w.Sockets.RA, true, func(p net.PacketConn) func(context.Context) error { return raLoop(w.Guest, p, log) }},
	} {
		if s.file == nil || !s.serves {
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

// markStarted writes the marker file of an interface; ours is false if another server has written it.
func (c Config) markStarted(g model.GuestConfig) (ours bool, err error) {
	if c.StartedDir == "" || g.DHCP4 == nil && g.DHCP6 == nil {
		return true, nil
	}
	path := filepath.Join(c.StartedDir, "dhcp_started-"+g.PodLink)
	if have, err := os.ReadFile(path); err == nil && string(have) != mark {
		return false, nil
	}
	if err := os.WriteFile(path, []byte(mark), 0o604); err != nil {
		return false, fmt.Errorf("marker file of DHCP: %w", err)
	}
	return true, nil
}

// addrOf returns a packet's source address without its zone. The socket is bound to the link anyway, and the net package
// cannot resolve the zone of a link in another namespace whose index is above 1<<24, as weft's are.
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
