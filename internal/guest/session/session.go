// SPDX-License-Identifier: Apache-2.0

// Package session is all that weft-guest does: it asks for the wires of its pod, serves them, takes others when they
// change, and asks again when who gave them has gone. It serves on meanwhile.
package session

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/weft-net/weft/internal/guest/handover"
	"github.com/weft-net/weft/internal/guest/serve"
)

const (
	// patience is how long who gives may take for the first wires once it has said hello.
	patience = 10 * time.Second
	// again is when who was not there is looked for again.
	again = 250 * time.Millisecond
)

// Config is a session's.
type Config struct {
	// Socket is where wires are given: @NAME in the network namespace, or a path.
	Socket string
	Serve  serve.Config
	Log    *slog.Logger
	After  func(time.Duration) <-chan time.Time
}

// session is one under way.
type session struct {
	Config
	// stop ends the serving of the present wires and waits for it; broken tells why one ended by itself.
	stop   func()
	broken chan error
}

// Run serves until the context ends, or until a wire cannot be heard any more.
func (c Config) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{Config: c, stop: func() {}, broken: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.loop(ctx)
	}()
	var err error
	select {
	case err = <-s.broken:
		cancel(err)
	case <-ctx.Done():
	}
	<-done
	s.stop()
	return err
}

// loop asks again and again.
func (s *session) loop(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		err := s.ask(ctx)
		if err != nil && err.Error() != last && ctx.Err() == nil { // one that stays away is one line
			last = err.Error()
			s.Log.Info("waiting for wires", "socket", s.Socket, "err", last)
		}
		if err == nil {
			last = ""
		}
		select {
		case <-ctx.Done():
		case <-s.After(again):
		}
	}
}

// ask takes wires from one who gives them until that one has gone. No error: there were some.
func (s *session) ask(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.Socket)
	if err != nil {
		return err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("socket %s: not a unix socket", s.Socket)
	}
	defer func() { _ = unix.Close() }()
	defer context.AfterFunc(ctx, func() { _ = unix.Close() })()
	if err := handover.Hear(unix); err != nil { // another weft-guest may be served now, or for long
		return err
	}
	s.stop()
	s.stop = func() {}
	if err := handover.Answer(unix); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = unix.Close() })
	defer late.Stop()
	taken := false
	for {
		wires, err := handover.Take(unix)
		if err != nil {
			if taken {
				return nil
			}
			return err
		}
		taken = true
		late.Stop()
		s.stop()
		s.Log.Info("serving", "wires", len(wires))
		s.begin(ctx, wires)
	}
}

// begin serves wires beside all else.
func (s *session) begin(ctx context.Context, wires []serve.Wire) {
	serving, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve.Run(serving, wires); err != nil && serving.Err() == nil {
			select {
			case s.broken <- err:
			default:
			}
		}
	}()
	s.stop = func() { cancel(); <-done }
}
