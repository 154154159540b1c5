// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/plan/mesh"
)

const (
	// interval is the time between two inspections of the socket and of the namespace's lock.
	interval = 100 * time.Millisecond
	// foreignAfter is after how many inspections in a row, in which an agent had the lock and none was connected, that
	// agent is another one: a killed agent's connection and its lock do not end at the same time.
	foreignAfter = 3
	// writeLimit limits a write to an agent that does not read.
	writeLimit = 5 * time.Second
	// longest is the longest message in bytes: 5,000 peers have 2 MB.
	longest = 64 << 20
)

// Tunnels runs tunnels. It is a tunnel.Runner.
type Tunnels interface {
	Keep(ctx context.Context, wanted []mesh.Tunnel) error
	// Reload makes the next Keep read key files again.
	Reload()
	// Running returns the number of tunnels.
	Running() int
	Changed() <-chan struct{}
	// Close stops all and returns when their devices can be opened by another process.
	Close()
}

// ServerConfig configures a Server.
type ServerConfig struct {
	// Listener is the socket, and Socket its path.
	Listener *net.UnixListener
	Socket   string
	Tunnels  Tunnels
	// Program is the version of the program.
	Program string
	// Locked reports whether an agent has locked the network namespace.
	Locked func() bool
	// Permanent is set for a process that no agent started, and none can start again: where it would end, it releases its
	// tunnels and waits for the next agent.
	Permanent bool
	Log       *slog.Logger
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time
}

// Server serves agents, one after the other.
type Server struct {
	cfg      ServerConfig
	file     os.FileInfo // the socket
	incoming chan incoming
	conns    map[*net.UnixConn]bool
	wanted   []mesh.Tunnel
	foreign  int // inspections in a row
}

// incoming is an event of a connection: its begin, a line, or its end.
type incoming struct {
	conn       *net.UnixConn
	begin, end bool
	line       []byte
}

// NewServer returns a Server.
func NewServer(cfg ServerConfig) *Server {
	cfg.Log = cfg.Log.With("component", "tunnels")
	return &Server{cfg: cfg, incoming: make(chan incoming), conns: map[*net.UnixConn]bool{}}
}

// Run serves until ctx ends or the socket was removed. One that is not permanent also ends when an agent requests that, an
// agent that does not connect has locked the namespace, or there is neither a tunnel nor an agent.
func (s *Server) Run(ctx context.Context) (err error) {
	if s.file, err = os.Stat(s.cfg.Socket); err != nil {
		return fmt.Errorf("socket of the tunnels: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	readers.Go(func() { s.accept(ctx, &readers) })
	defer func() {
		cancel()
		if s.current() {
			_ = os.Remove(s.cfg.Socket)
		}
		s.cfg.Tunnels.Close() // before the connections: their end reports it
		_ = s.cfg.Listener.Close()
		for c := range s.conns {
			_ = c.Close()
		}
		readers.Wait()
	}()
	connected := false
	tick := s.cfg.After(interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-s.incoming:
			connected = true
			if s.handle(ctx, in) {
				return nil
			}
		case <-s.cfg.Tunnels.Changed():
			s.changed(ctx)
		case <-tick:
			tick = s.cfg.After(interval)
			if !s.current() {
				s.cfg.Log.Info("process of the tunnels ends", "reason", "the socket was removed")
				return nil
			}
			if s.obsolete() && s.dismiss(ctx, "an agent that runs tunnels itself was started") {
				return nil
			}
		}
		if connected && len(s.conns) == 0 && s.cfg.Tunnels.Running() == 0 && !s.cfg.Permanent {
			return nil
		}
	}
}

// current reports whether the socket is still this process's.
func (s *Server) current() bool {
	now, err := os.Stat(s.cfg.Socket)
	return err == nil && os.SameFile(now, s.file)
}

// obsolete reports whether another agent has taken over.
func (s *Server) obsolete() bool {
	if len(s.conns) > 0 || !s.cfg.Locked() {
		s.foreign = 0
		return false
	}
	s.foreign++
	return s.foreign >= foreignAfter
}

// dismiss releases the tunnels of a permanent process, and reports whether any other must end.
func (s *Server) dismiss(ctx context.Context, why string) (end bool) {
	if !s.cfg.Permanent {
		s.cfg.Log.Info("process of the tunnels ends", "reason", why)
		return true
	}
	if s.wanted = nil; s.cfg.Tunnels.Running() > 0 {
		s.cfg.Log.Info("process of the tunnels releases them", "reason", why)
		if err := s.cfg.Tunnels.Keep(ctx, nil); err != nil {
			s.cfg.Log.Warn("tunnels were not released", "err", err)
		}
	}
	return false
}

// accept accepts connections of the same user until the listener is closed.
func (s *Server) accept(ctx context.Context, readers *sync.WaitGroup) {
	for {
		conn, err := s.cfg.Listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-s.cfg.After(interval):
				continue
			case <-ctx.Done():
				return
			}
		}
		if !ownUser(conn) {
			_ = conn.Close()
			continue
		}
		readers.Go(func() { s.read(ctx, conn) })
	}
}

// ownUser reports whether the other end belongs to the process's user, or to root.
func ownUser(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if controlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil || err != nil {
		return false
	}
	return peer.Uid == 0 || int(peer.Uid) == os.Geteuid()
}

func (s *Server) read(ctx context.Context, conn *net.UnixConn) {
	send := func(in incoming) bool {
		select {
		case s.incoming <- in:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !send(incoming{conn: conn, begin: true}) {
		_ = conn.Close()
		return
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		if !send(incoming{conn: conn, line: append([]byte(nil), lines.Bytes()...)}) {
			return
		}
	}
	send(incoming{conn: conn, end: true})
}

// handle handles an event of a connection. It reports whether the end of the process was requested.
func (s *Server) handle(ctx context.Context, in incoming) (end bool) {
	switch {
	case in.end:
		delete(s.conns, in.conn)
		_ = in.conn.Close()
		return false
	case in.begin:
		s.conns[in.conn] = true
		s.cfg.Tunnels.Reload() // key files may have changed while no agent was connected
		s.write(in.conn, hello{Version: Version, Program: s.cfg.Program, PID: os.Getpid()})
		return false
	}
	r, err := parseRequest(in.line)
	switch {
	case err != nil:
		s.write(in.conn, response{Unknown: err.Error()})
		return false
	case r.End:
		if s.dismiss(ctx, "the agent requested it") {
			return true
		}
		_ = in.conn.Close() // the agent sees by that that the devices are released; its reader reports the end
		return false
	case !r.Unchanged:
		s.wanted = r.Tunnels
	}
	var answer response
	if err := s.cfg.Tunnels.Keep(ctx, s.wanted); err != nil {
		answer.Error = err.Error()
	}
	s.write(in.conn, answer)
	return false
}

// changed handles a tunnel's death: the agents have its device created again; without one it is tried here.
func (s *Server) changed(ctx context.Context) {
	for c := range s.conns {
		s.write(c, response{Changed: true})
	}
	if len(s.conns) > 0 {
		return
	}
	if err := s.cfg.Tunnels.Keep(ctx, s.wanted); err != nil {
		s.cfg.Log.Warn("tunnels do not run", "err", err)
	}
}

// write sends a message. An agent that does not read is disconnected.
func (s *Server) write(conn *net.UnixConn, message any) {
	b, err := json.Marshal(message)
	if err == nil {
		_ = conn.SetWriteDeadline(s.cfg.Now().Add(writeLimit))
		_, err = conn.Write(append(b, '\n'))
	}
	if err != nil {
		_ = conn.Close() // its reader reports the end
	}
}

// Locked reports whether a listening socket with this abstract name exists in the process's network namespace.
func Locked(name string) bool {
	const listening = "00010000" // __SO_ACCEPTCON
	b, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 8 && f[7] == name && f[3] == listening {
			return true
		}
	}
	return false
}
