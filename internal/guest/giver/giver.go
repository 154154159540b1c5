// SPDX-License-Identifier: Apache-2.0

// Package giver gives the guests' wires of one pod, words and open sockets, to the weft-guest that runs beside the
// pod's hypervisor: whenever one is started, and again when the wires change.
//
// # One at a time
//
// Two that serve one wire would each hear half of what a guest says, so the second waits until the first has gone.
//
// # Sockets
//
// They are opened when the first weft-guest asks for them, and stay open here: what a guest says while none runs waits
// in them. Who takes has closed those of before by then (handover.Greet): an agent that was started anew opens them
// anew.
package giver

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
	// patience bounds each hand-over: who asks reads at once.
	patience = 5 * time.Second
	// openAgain and openTries are for a port that a weft-guest which has just been killed still holds.
	openAgain = 50 * time.Millisecond
	openTries = 40
	// mostCallers are how many are heard at a time. Whoever runs in the pod can call, and each call takes a descriptor of
	// this process's. A pause follows each call that is refused.
	mostCallers = 16
	pause       = 10 * time.Millisecond
)

// Giver gives the wires of one pod.
type Giver struct {
	// Step, which may be nil, is called before each thing that is done for a weft-guest: for tests.
	Step failpoint.Hook

	pod      *netns.NS
	owner    uint32
	log      *slog.Logger
	listener *net.UnixListener
	turn     *semaphore.Weighted
	callers  *semaphore.Weighted

	mu      sync.Mutex
	said    string // the last complaint, which is not repeated
	want    []model.Guest
	open    []wire
	changed chan struct{} // closed when want becomes another
}

// wire is an open one; index is its link's.
type wire struct {
	serve.Wire
	index int
}

// Listen begins to listen in a pod, at an abstract address (@NAME), which is the pod's namespace's own, or at a path of
// this process's. Only owner, root and the user of this process are given anything. The namespace must stay open until
// Run ends.
func Listen(pod *netns.NS, address string, owner uint32, log *slog.Logger) (*Giver, error) {
	g := &Giver{
		pod: pod, owner: owner, log: log, turn: semaphore.NewWeighted(1), callers: semaphore.NewWeighted(mostCallers),
		changed: make(chan struct{}),
	}
	listen := func() error {
		var err error
		g.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
		return err
	}
	err := error(nil)
	if strings.HasPrefix(address, "@") {
		err = pod.Do(listen)
	} else {
		err = atPath(address, owner, listen)
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, model.Faultf(model.CodeExists, "end who listens there",
			"socket %s: somebody else gives wires to weft-guest there already", address)
	}
	if err != nil {
		if g.listener != nil {
			_ = g.listener.Close()
		}
		return nil, fmt.Errorf("socket for weft-guest: %w", err)
	}
	return g, nil
}

// atPath listens at a path where a killed process may have left a socket. Nobody but the owner may call there at any
// moment.
func atPath(path string, owner uint32, listen func() error) error {
	if c, err := net.DialTimeout("unix", path, patience); err == nil {
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

// Set says which wires there are from now on.
func (g *Giver) Set(guests []model.Guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want = slices.Clone(guests)
	g.open = slices.DeleteFunc(g.open, func(w wire) bool {
		stays := slices.ContainsFunc(guests, func(o model.Guest) bool { return o.Link == w.Guest.Link })
		if !stays {
			_ = w.Sockets.Close()
		}
		return !stays
	})
	close(g.changed)
	g.changed = make(chan struct{})
}

// Run gives wires until the context ends.
func (g *Giver) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = g.listener.Close() })()
	var callers sync.WaitGroup
	defer g.closeAll()
	defer callers.Wait()
	defer stop()
	for {
		conn, err := g.listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err == nil && g.callers.TryAcquire(1):
			callers.Go(func() {
				defer g.callers.Release(1)
				g.answer(ctx, conn)
			})
			continue
		case err == nil:
			_ = conn.Close()
		case !short(err):
			return fmt.Errorf("socket for weft-guest: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// short tells whether what is lacking may be there again: others have it.
func short(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) ||
		errors.Is(err, unix.ENOMEM)
}

// answer attends to a caller and says what was wrong.
func (g *Giver) answer(ctx context.Context, conn *net.UnixConn) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := g.attend(ctx, conn); err != nil && ctx.Err() == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.complain(err)
	}
}

// complain tells what is wrong, once. g.mu is held.
func (g *Giver) complain(err error) {
	if g.said != err.Error() {
		g.said = err.Error()
		g.log.Warn("weft-guest has not got its wires", "err", err)
	}
}

// Close ends a Giver that does not run.
func (g *Giver) Close() error {
	g.closeAll()
	return g.listener.Close()
}

func (g *Giver) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.open {
		_ = w.Sockets.Close()
	}
	g.open = nil
}

// attend gives one weft-guest its wires until it has gone.
func (g *Giver) attend(ctx context.Context, conn *net.UnixConn) error {
	if err := g.trusted(conn); err != nil {
		return err
	}
	if g.turn.Acquire(ctx, 1) != nil {
		return nil
	}
	defer g.turn.Release(1)
	if err := g.Step.At("wires greet"); err != nil {
		return err
	}
	if err := handover.Greet(conn, patience); err != nil {
		return nil // it did not wait until its turn
	}
	gone := make(chan struct{})
	told := false
	for {
		if err := g.Step.At("wires open"); err != nil {
			return err
		}
		wires, changed, err := g.wires(ctx)
		if err != nil {
			return err
		}
		if err := g.Step.At("wires give"); err != nil {
			return err
		}
		late := time.AfterFunc(patience, func() { _ = conn.Close() })
		err = handover.Give(conn, wires)
		late.Stop()
		if err != nil {
			return err
		}
		if err := g.Step.At("wires given"); err != nil {
			return err
		}
		if !told {
			told = true
			go func() { // ends with the connection, which this function's caller closes
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

// trusted refuses callers that are neither the hypervisor's user nor one who may do all that anyway.
func (g *Giver) trusted(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil {
		return fmt.Errorf("who calls: %w", errors.Join(e, err))
	}
	if peer.Uid == 0 || peer.Uid == g.owner || peer.Uid == uint32(os.Geteuid()) {
		return nil
	}
	return model.Faultf(model.CodeIO, "run it as the hypervisor's user", "user %d asks for the wires, which are user %d's",
		peer.Uid, g.owner)
}
