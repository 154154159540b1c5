// SPDX-License-Identifier: Apache-2.0

// Package session is the main loop of weft-guest: it receives the interfaces of its pod and their sockets from an
// fdserver, serves them, and receives them again when they change. If the fdserver goes away, it continues to serve and
// reconnects.
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
	// receiveTimeout bounds the time from the server's hello to the first interfaces.
	receiveTimeout = 10 * time.Second
	// retryInterval is the time between two attempts to connect.
	retryInterval = 250 * time.Millisecond
)

// Config configures a session.
type Config struct {
	// Socket is the fdserver's address: @NAME in the network namespace, or a path.
	Socket string
	Serve  serve.Config
	Log    *slog.Logger
	After  func(time.Duration) <-chan time.Time
}

type session struct {
	Config
	// stop stops serving the current interfaces and waits for that; failed has the error of one that stopped by itself.
	stop   func()
	failed chan error
}

// Run serves until the context ends or serving an interface fails.
func (c Config) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &session{Config: c, stop: func() {}, failed: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.loop(ctx)
	}()
	var err error
	select {
	case err = <-s.failed:
		cancel(err)
	case <-ctx.Done():
	}
	<-done
	s.stop()
	return err
}

// loop connects to the fdserver, again and again.
func (s *session) loop(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		err := s.connect(ctx)
		if err != nil && err.Error() != last && ctx.Err() == nil { // log an error that persists only once
			last = err.Error()
			s.Log.Info("waiting for sockets", "socket", s.Socket, "err", last)
		}
		if err == nil {
			last = ""
		}
		select {
		case <-ctx.Done():
		case <-s.After(retryInterval):
		}
	}
}

// connect receives interfaces from an fdserver until the connection ends. It returns nil if it has received any.
func (s *session) connect(ctx context.Context) error {
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
	if err := handover.WaitHello(unix); err != nil { // this blocks while another weft-guest is connected
		return err
	}
	s.stop()
	s.stop = func() {}
	if err := handover.Ready(unix); err != nil {
		return err
	}
	late := time.AfterFunc(receiveTimeout, func() { _ = unix.Close() })
	defer late.Stop()
	received := false
	for {
		interfaces, err := handover.Receive(unix)
		if err != nil {
			if received {
				return nil
			}
			return err
		}
		received = true
		late.Stop()
		s.stop()
		s.Log.Info("serving guests", "interfaces", len(interfaces))
		s.start(ctx, interfaces)
	}
}

// start serves interfaces in the background.
func (s *session) start(ctx context.Context, interfaces []serve.Interface) {
	serving, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve.Run(serving, interfaces); err != nil && serving.Err() == nil {
			select {
			case s.failed <- err:
			default:
			}
		}
	}()
	s.stop = func() { cancel(); <-done }
}
