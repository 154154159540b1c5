// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// answerLimit limits how long an answer may take.
const answerLimit = time.Minute

// ListenerFD is the descriptor of the socket in the process.
const ListenerFD = 3

// ClientConfig configures a Client.
type ClientConfig struct {
	// Socket is the path of the socket.
	Socket string
	// Program and its arguments run a Server at the descriptor ListenerFD. It is executed in NS; nil is the process's own
	// namespace.
	Program []string
	NS      *netns.NS
	// Local, which may be nil, runs the tunnels while no process does that this program understands. There is no Program
	// then: a permanent process is found when it listens.
	Local Tunnels
	// Stderr is the process's.
	Stderr *os.File
	Log    *slog.Logger
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
}

// Client runs tunnels in the process. Its methods are not called concurrently, except Changed.
type Client struct {
	cfg     ClientConfig
	changed notify.Chan
	link    *link // nil while not connected
	wanted  []mesh.Tunnel
	// local follows the process that is not connected; nil if there is no Local.
	local *local
}

// link is a connection to a process.
type link struct {
	conn    *net.UnixConn
	hello   hello
	answers chan response // closed at the connection's end
	// compared: tunnels that do not run in the process were tried here.
	compared bool
}

// NewClient returns a Client, which is connected if a process listens.
func NewClient(cfg ClientConfig) *Client {
	cfg.Log = cfg.Log.With("component", "tunnels")
	c := &Client{cfg: cfg, changed: notify.New()}
	if cfg.Local != nil {
		c.local = follow(cfg, c.changed)
	}
	switch l, err := c.dial(); {
	case err == nil:
		c.use(l)
		cfg.Log.Info("tunnels continue in their process", "pid", l.hello.PID, "version", l.hello.Program)
	case !notListening(err):
		cfg.Log.Warn("process of the tunnels cannot be reached", "socket", cfg.Socket, "err", err)
	}
	return c
}

// Changed receives a token when a tunnel or the process has died.
func (c *Client) Changed() <-chan struct{} { return c.changed }

// Close disconnects. The tunnels of the process continue.
func (c *Client) Close() {
	if c == nil {
		return
	}
	if c.link != nil {
		c.disconnect()
	}
	if c.local != nil {
		c.local.close()
	}
}

func (c *Client) use(l *link) {
	c.link = l
	if c.local != nil {
		c.local.connected.Store(true)
	}
}

func (c *Client) disconnect() {
	_ = c.link.conn.Close()
	for range c.link.answers { // the reader's end
	}
	c.link = nil
	if c.local != nil {
		c.local.connected.Store(false)
	}
}

// Keep starts, changes and stops tunnels so that the wanted ones run. The error has all tunnels that do not.
func (c *Client) Keep(ctx context.Context, wanted []mesh.Tunnel) error {
	if c.local != nil {
		return c.keepLocal(ctx, wanted)
	}
	if len(wanted) == 0 && c.link == nil {
		return nil
	}
	var err error
	for range 2 { // the second time with a new process
		var again bool
		if again, err = c.try(ctx, wanted); !again {
			return err
		}
	}
	return err
}

// try makes one request. again reports that the process is gone or another one is needed.
func (c *Client) try(ctx context.Context, wanted []mesh.Tunnel) (again bool, err error) {
	unchanged := c.link != nil && c.wanted != nil && reflect.DeepEqual(c.wanted, wanted)
	if c.link == nil {
		l, err := c.connect()
		if err != nil {
			return false, err
		}
		c.use(l)
	}
	if c.link.hello.Version != Version {
		return true, c.end(fmt.Errorf("process of the tunnels: version %d is unknown, this program knows %d",
			c.link.hello.Version, Version))
	}
	r := request{Version: Version, Tunnels: wanted}
	if unchanged {
		r = request{Version: Version, Unchanged: true}
	}
	c.wanted = nil
	answer, err := c.ask(ctx, r)
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		c.cfg.Log.Warn("process of the tunnels is gone", "err", err)
		c.disconnect()
		return true, err
	case answer.Unknown != "":
		return true, c.end(fmt.Errorf("process of the tunnels: %s", answer.Unknown))
	case answer.Error != "":
		return false, runError(answer.Error)
	}
	c.wanted = wanted
	return false, nil
}

// runError is why tunnels do not run in a process that understood the request.
type runError string

func (e runError) Error() string { return string(e) }

// end ends a process of another version, and waits until it has released its devices. It returns why.
func (c *Client) end(why error) error {
	c.cfg.Log.Info("process of the tunnels is replaced, and packets are lost meanwhile", "reason", why,
		"version", c.link.hello.Program)
	if c.local != nil {
		c.local.refuse()
	}
	b, err := json.Marshal(request{End: true})
	if err == nil {
		_ = c.link.conn.SetDeadline(c.cfg.Now().Add(answerLimit))
		if _, err = c.link.conn.Write(append(b, '\n')); err == nil {
			for range c.link.answers {
			}
		}
	}
	c.disconnect()
	return errors.Join(why, err)
}

// ask sends a request and waits for its answer.
func (c *Client) ask(ctx context.Context, r request) (response, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = c.link.conn.SetWriteDeadline(deadline)
	if _, err := c.link.conn.Write(append(b, '\n')); err != nil {
		return response{}, fmt.Errorf("process of the tunnels: %w", err)
	}
	select {
	case answer, ok := <-c.link.answers:
		if !ok {
			return response{}, errors.New("process of the tunnels: it has ended")
		}
		return answer, nil
	case <-ctx.Done():
		return response{}, fmt.Errorf("process of the tunnels: no answer: %w", ctx.Err())
	}
}

// connect connects to the process, and starts it if none listens.
func (c *Client) connect() (*link, error) {
	l, err := c.dial()
	if err == nil || !notListening(err) || c.local != nil {
		return l, err
	}
	if err := c.start(); err != nil {
		return nil, fmt.Errorf("process of the tunnels: %w", err)
	}
	return c.dial()
}

// notListening reports whether no process listens at the socket.
func notListening(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// dial connects to the process and reads its first message.
func (c *Client) dial() (*link, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.cfg.Socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("process of the tunnels: %w", err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longest)
	l := &link{conn: conn, answers: make(chan response)}
	_ = conn.SetReadDeadline(c.cfg.Now().Add(answerLimit))
	if !lines.Scan() {
		_ = conn.Close()
		return nil, fmt.Errorf("process of the tunnels: it has ended: %w", errors.Join(lines.Err(), syscall.ECONNREFUSED))
	}
	if err := json.Unmarshal(lines.Bytes(), &l.hello); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("process of the tunnels: first message: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		defer c.changed.Notify() // the next Keep starts another process
		defer close(l.answers)
		for lines.Scan() {
			var r response
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				r = response{Unknown: err.Error()}
			}
			if r.Changed {
				c.changed.Notify()
				continue
			}
			l.answers <- r
		}
	}()
	return l, nil
}

// Listen creates the socket, in place of one of a process that was killed. Until it listens it has another name, so that
// a socket at which nothing listens is never a process that begins.
func Listen(socket string) (*net.UnixListener, error) {
	early := socket + ".new"
	if err := os.Remove(early); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: early, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(early, 0o600); err == nil {
		err = atomicfile.Link(early, socket, atomicfile.CrashSafe)
	}
	if err = errors.Join(err, os.Remove(early)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// start creates the socket and starts the process, which outlives this one.
func (c *Client) start() error {
	l, err := Listen(c.cfg.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	file, err := l.File()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	program := c.cfg.Program[0]
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) { // another version has replaced it
		program = "/proc/self/exe"
	}
	cmd := exec.Command(program, c.cfg.Program[1:]...)
	cmd.Args[0] = c.cfg.Program[0]
	cmd.ExtraFiles, cmd.Stderr = []*os.File{file}, c.cfg.Stderr
	// The signals for the agent's terminal are not for it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.cfg.NS.Do(cmd.Start); err != nil {
		return err
	}
	c.cfg.Log.Info("process of the tunnels is started, and outlives the agent", "pid", cmd.Process.Pid)
	go func() { _ = cmd.Wait() }()
	return nil
}
