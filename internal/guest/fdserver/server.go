// SPDX-License-Identifier: Apache-2.0

// Package fdserver passes the interfaces of one pod's guest, configuration and open sockets, to the weft-guest that runs
// next to the pod's hypervisor: whenever a weft-guest connects, and again when the interfaces change.
//
// # One client at a time
//
// Two processes that serve one link would each get only a part of the guest's packets. A second client waits until the
// first disconnects.
//
// # Sockets
//
// The server opens the sockets when the first weft-guest connects, and keeps them open: packets that a guest sends while
// no weft-guest runs stay in their buffers. A client has closed the sockets that it received before (handover.Hello), so
// that a restarted agent can bind new ones.
package fdserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

const (
	// timeout bounds each hand-over; a client reads without delay.
	timeout = 5 * time.Second
	// retryInterval and maxRetries apply to a port that is still bound by a weft-guest which was just killed.
	retryInterval = 50 * time.Millisecond
	maxRetries    = 40
	// maxClients bounds concurrent connections: any process in the pod can connect, and each connection takes a file
	// descriptor of this process. The server pauses after each connection that it refuses.
	maxClients = 16
	pause      = 10 * time.Millisecond
)

// Server serves the interfaces of one pod's guest.
type Server struct {
	// Failpoint, which may be nil, is called before each step of serving a weft-guest.
	Failpoint failpoint.Hook

	pod      *netns.NS
	owner    uint32
	log      *slog.Logger
	listener *net.UnixListener
	turn     *semaphore.Weighted // of the client that is served
	clients  *semaphore.Weighted

	mu      sync.Mutex
	lastErr string // the last error that was logged; it is not repeated
	want    []model.GuestConfig
	open    []openInterface
	changed chan struct{} // closed when want changes
}

// openInterface is an interface whose sockets are open; index is its link's.
type openInterface struct {
	serve.Interface
	index int
}

// Listen listens in a pod, at an abstract address (@NAME) in the pod's network namespace or at a path in this process's
// mount namespace. Only owner, root and the user of this process are served. The namespace must stay open until Run
// returns.
func Listen(pod *netns.NS, address string, owner uint32, log *slog.Logger) (*Server, error) {
	s := &Server{
		pod: pod, owner: owner, log: log, turn: semaphore.NewWeighted(1), clients: semaphore.NewWeighted(maxClients),
		changed: make(chan struct{}),
	}
	listen := func() error {
		var err error
		s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
		return err
	}
	err := error(nil)
	if strings.HasPrefix(address, "@") {
		err = pod.Do(listen)
	} else {
		err = atPath(address, owner, listen)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, model.Errorf(model.CodeExists, "stop the process that listens there",
			"socket %s: another process serves weft-guest there already", address)
	}
	if err != nil {
		if s.listener != nil {
			_ = s.listener.Close()
		}
		return nil, fmt.Errorf("socket for weft-guest: %w", err)
	}
	return s, nil
}

// atPath listens at a path, and removes a socket that a killed process left there. At no time can other users than the
// owner connect.
func atPath(path string, owner uint32, listen func() error) error {
	if c, err := net.DialTimeout("unix", path, timeout); err == nil {
		_ = c.Close()
		return unix.EADDRINUSE
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path)
	}
	if err := listen(); err != nil {
		return err
	}
	return errors.Join(os.Chmod(path, 0o600), os.Chown(path, int(owner), int(owner)))
}

// Set replaces the interfaces that are served.
func (s *Server) Set(guests []model.GuestConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = slices.Clone(guests)
	s.open = slices.DeleteFunc(s.open, func(w openInterface) bool {
		stays := slices.ContainsFunc(guests, func(o model.GuestConfig) bool { return o.Link == w.Guest.Link })
		if !stays {
			_ = w.Sockets.Close()
		}
		return !stays
	})
	close(s.changed)
	s.changed = make(chan struct{})
}

// Run serves until the context ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = s.listener.Close() })()
	var clients sync.WaitGroup
	defer s.closeAll()
	defer clients.Wait()
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err == nil && s.clients.TryAcquire(1):
			clients.Go(func() {
				defer s.clients.Release(1)
				s.answer(ctx, conn)
			})
			continue
		case err == nil:
			_ = conn.Close()
		case !temporary(err):
			return fmt.Errorf("socket for weft-guest: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// temporary reports whether an error of accept is a shortage of descriptors or memory, which may pass.
func temporary(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.ENOMEM)
}

// answer serves a client and logs errors.
func (s *Server) answer(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := s.serveClient(ctx, conn); err != nil && ctx.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.warnLocked(err)
	}
}

// warnLocked logs an error unless it is the same as the last one.
func (s *Server) warnLocked(err error) {
	if s.lastErr != err.Error() {
		s.lastErr = err.Error()
		s.log.Warn("weft-guest did not get its sockets", "err", err)
	}
}

// Close closes a Server that does not run.
func (s *Server) Close() error {
	s.closeAll()
	return s.listener.Close()
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.open {
		_ = w.Sockets.Close()
	}
	s.open = nil
}

// serveClient sends the interfaces to one weft-guest, and again when they change, until it disconnects.
func (s *Server) serveClient(ctx context.Context, conn *net.UnixConn) error {
	if err := s.authorize(conn); err != nil {
		return err
	}
	if s.turn.Acquire(ctx, 1) != nil {
		return nil
	}
	defer s.turn.Release(1)
	if err := s.Failpoint.At("fdserver hello"); err != nil {
		return err
	}
	if err := handover.Hello(conn, timeout); err != nil {
		return nil // the client disconnected before its turn
	}
	gone := make(chan struct{})
	watched := false
	for {
		if err := s.Failpoint.At("fdserver open"); err != nil {
			return err
		}
		interfaces, changed, err := s.interfaces(ctx)
		if err != nil {
			return err
		}
		if err := s.Failpoint.At("fdserver send"); err != nil {
			return err
		}
		late := time.AfterFunc(timeout, func() { _ = conn.Close() })
		err = handover.Send(conn, interfaces)
		late.Stop()
		if err != nil {
			return err
		}
		if err := s.Failpoint.At("fdserver sent"); err != nil {
			return err
		}
		if !watched {
			watched = true
			go func() { // returns when the connection is closed, at the latest by the deferred function
				defer close(gone)
				_, _ = conn.Read(make([]byte, 1))
			}()
			defer func() { _ = conn.Close(); <-gone }()
		}
		select {
		case <-gone:
			return nil
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// authorize refuses clients of other users than the hypervisor's, root and this process's.
func (s *Server) authorize(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil {
		return fmt.Errorf("credentials of the client: %w", errors.Join(e, err))
	}
	if peer.Uid == 0 || peer.Uid == s.owner || peer.Uid == uint32(os.Geteuid()) {
		return nil
	}
	return model.Errorf(model.CodeIO, "run weft-guest as the hypervisor's user",
		"user %d may not receive the guest's sockets, which belong to user %d", peer.Uid, s.owner)
}
