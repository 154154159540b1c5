// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const oneNetwork = `{"cniVersion":"1.0.0","name":"net","type":"weft-cni","delegates":[{"type":"ptp"}]}`

func TestSocketIsPrivate(t *testing.T) {
	socket := serve(t, &recorder{})
	st, err := os.Stat(socket)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", st.Mode(), err)
	}
}

func TestOthersAreRefused(t *testing.T) {
	dir, err := os.MkdirTemp("", "weft-peer")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "agent.sock")
	defer serveAt(t, &recorder{}, socket)()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "dial") // executable by another user
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(bin, b, 0o755), os.Chmod(dir, 0o755), os.Chmod(socket, 0o666)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	cmd.Env = []string{dialAs + "=" + socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	out, err := cmd.Output()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		nettest.Skip(t, "no second user id in this namespace to call as")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if a := parseAnswer(t, out); a.exit != 1 || !strings.Contains(a.fault.Msg, "uid 65534") {
		t.Errorf("got %+v", a)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	rec := &recorder{}
	socket := serve(t, rec)
	head := func(h wire.Header) []byte {
		b := make([]byte, wire.RequestHeader)
		h.Put(b)
		return b
	}
	for name, frame := range map[string][]byte{
		"foreign":    []byte("GET / HTTP/1.1\r\n\r\n"),
		"large env":  head(wire.Header{Env: wire.MaxEnv + 1}),
		"large conf": head(wire.Header{Conf: wire.MaxConf + 1}),
		"no rights":  frameOf("{}", true),
		"too long":   append(frameOf("{}", false), 'x'),
	} {
		if a := send(t, socket, frame, nil); a.exit != 1 || a.fault.Code != int(model.CodeDecode) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	large := frameOf(oneNetwork[:len(oneNetwork)-1]+strings.Repeat(" ", 900<<10)+"}", true, vars("ADD", "big")...)
	ns := nettest.NS(t, "big")
	if a := send(t, socket, large, syscall.UnixRights(ns.Fd())); a.exit != 0 {
		t.Errorf("a request of 900 KiB: %+v", a)
	}
	if calls := rec.seen(); len(calls) != 1 {
		t.Errorf("attach was asked %q", calls)
	}
}

// TestUnknownVersionIsRefused: a request of a version that this agent does not know is not executed, and its caller
// learns that, instead of a CNI error that would be final for the runtime.
func TestUnknownVersionIsRefused(t *testing.T) {
	rec := &recorder{}
	socket := serve(t, rec)
	for _, verb := range []string{"ADD", "DEL", "CHECK"} {
		frame := frameOf(oneNetwork, false, vars(verb, "c")...)
		frame[4]++
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, err = conn.Write(frame)
		out, _ := io.ReadAll(conn)
		_ = conn.Close()
		if _, refused := wire.ParseAnswer(out); err != nil || !errors.Is(refused, wire.ErrVersion) {
			t.Errorf("%s: %v, answer %q: %v", verb, err, out, refused)
		}
	}
	if calls := rec.seen(); len(calls) != 0 {
		t.Errorf("attach got %q", calls)
	}
}

func TestSilentCallersAreDropped(t *testing.T) {
	socket := serve(t, &recorder{})
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	start := time.Now()
	_ = conn.SetDeadline(start.Add(12 * readLimit))
	if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(start) > 8*readLimit {
		t.Errorf("dropped after %s: %v", time.Since(start), err)
	}
}

func TestMoreDescriptorsThanOne(t *testing.T) {
	socket := serve(t, &recorder{})
	a, b := nettest.NS(t, "a"), nettest.NS(t, "b")
	before := descriptors(t)
	for range 10 {
		frame := frameOf(oneNetwork, true, vars("ADD", "c")...)
		send(t, socket, frame, syscall.UnixRights(a.Fd(), b.Fd(), a.Fd(), b.Fd(), a.Fd()))
	}
	if after := descriptors(t); after > before+2 {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestPingDuringABusyCall(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	socket := serve(t, &recorder{do: func(context.Context, string, attach.Job) error {
		close(started)
		<-finish
		return nil
	}})
	done := make(chan answer, 1)
	ns := nettest.NS(t, "c")
	go func() { done <- ask(t, socket, oneNetwork, ns, vars("ADD", "c")...) }()
	<-started
	for range 3 {
		conn, err := net.Dial("unix", wire.PingSocket(socket))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		b, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(b, wire.AppendAnswer(nil, 0, nil)) {
			t.Errorf("ping: %q, %v", b, err)
		}
		_ = conn.Close()
	}
	close(finish)
	if a := <-done; a.exit != 0 {
		t.Errorf("the call: %+v", a)
	}
}

// TestWorkersAnswerPings: a worker answers a ping between two calls, even if the pings goroutine is not scheduled.
func TestWorkersAnswerPings(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s, err := New(Config{
		Now: time.Now, Socket: socket, Attacher: &recorder{}, Records: &recorder{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range busyWorkers + 1 { // and nothing else of Run
		s.spawnWorker()
	}
	defer func() {
		s.closing.Store(true)
		s.socket.wake()
		s.workers.Wait()
		if err := s.socket.close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("unix", wire.PingSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ask(t, socket, "", nil, "CNI_COMMAND=VERSION")
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if b, err := io.ReadAll(conn); err != nil || !bytes.Equal(b, wire.AppendAnswer(nil, 0, nil)) {
		t.Errorf("ping: %q, %v", b, err)
	}
}

func TestLateCallIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &call{ctx: ctx, cancel: cancel, fd: -1, read: true, start: time.Now()}
	c.enforceLimits(c.start.Add(callLimit / 2))
	if ctx.Err() != nil {
		t.Error("ended too early")
	}
	c.enforceLimits(c.start.Add(callLimit + time.Second))
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		t.Errorf("cause %v", context.Cause(ctx))
	}
}

func TestPanicIsContained(t *testing.T) {
	rec := &recorder{do: func(_ context.Context, verb string, _ attach.Job) error {
		if verb == "ADD" {
			panic("boom")
		}
		return nil
	}}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	if a := ask(t, socket, oneNetwork, ns, vars("ADD", "c")...); a.fault.Code != 999 ||
		!strings.Contains(a.fault.Msg, "boom") {
		t.Errorf("ADD: %+v", a)
	}
	if a := ask(t, socket, oneNetwork, ns, vars("DEL", "c")...); a.exit != 0 {
		t.Errorf("DEL after it: %+v", a)
	}
}

func TestErrorsHaveCodes(t *testing.T) {
	for code, err := range map[int]error{
		8:   fmt.Errorf("pod: %w", netns.ErrGone),
		11:  fmt.Errorf("foreign plugin: %w", context.DeadlineExceeded),
		5:   fmt.Errorf("ledger: %w", unix.ENOSPC),
		101: fmt.Errorf("ipam: %w", model.Errorf(model.CodeExhausted, "", "no address is free")),
		999: errors.New("something"),
	} {
		socket := serve(t, &recorder{do: func(context.Context, string, attach.Job) error { return err }})
		if a := ask(t, socket, oneNetwork, nettest.NS(t, "c"), vars("ADD", "c")...); a.fault.Code != code ||
			!strings.Contains(a.fault.Msg, err.Error()) {
			t.Errorf("%v: got %+v, want code %d", err, a, code)
		}
	}
}

func TestParallelCallsAndStop(t *testing.T) {
	const n = 100
	rec := &recorder{do: func(context.Context, string, attach.Job) error {
		time.Sleep(400 * time.Millisecond)
		return nil
	}}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	stop := serveAt(t, rec, socket)
	ns := nettest.NS(t, "c")
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if a := ask(t, socket, oneNetwork, ns, vars("ADD", fmt.Sprint("c", i))...); a.exit != 0 {
				t.Errorf("call %d: %+v", i, a)
			}
		})
	}
	for len(rec.seenSoFar()) < n {
		time.Sleep(5 * time.Millisecond)
	}
	stop() // running calls finish
	wg.Wait()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func (r *recorder) seenSoFar() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func TestTwoServersOneSocket(t *testing.T) {
	socket := serve(t, &recorder{})
	if _, err := listen(socket); err == nil || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("a second listener: %v", err)
	}
	if a := ask(t, socket, "", nil, "CNI_COMMAND=VERSION"); a.exit != 0 {
		t.Errorf("the first is disturbed: %+v", a)
	}
}

func TestStaleSocketIsTakenOver(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	fd, err := bind(socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd) // as SIGKILL leaves it
	defer serveAt(t, &recorder{}, socket)()
	if a := ask(t, socket, "", nil, "CNI_COMMAND=VERSION"); a.exit != 0 {
		t.Errorf("got %+v", a)
	}
}

func TestAbandonedAddIsNotDone(t *testing.T) {
	rec := &recorder{}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	l, err := listen(socket) // the agent listens but does not serve: as if it were stopped
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ns := nettest.NS(t, "c")
	if _, _, err := conn.WriteMsgUnix(frameOf(oneNetwork, true, vars("ADD", "c")...), syscall.UnixRights(ns.Fd()),
		nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close() // weft-cni has given up
	s := &Server{
		cfg: &Config{Attacher: rec, Records: rec, Socket: socket}, socket: l, watchdog: newWatchdog(), calls: t.Context(),
		parked: newParked(),
	}
	s.log = logTo(t)
	s.verbs = verbsOf(t, rec)
	s.verbs.queue, err = openQueue(filepath.Join(t.TempDir(), "queue"), nil, s.log, time.Now, s.verbs.replay)
	if err != nil {
		t.Fatal(err)
	}
	s.closing.Store(true)
	s.spawnWorker()
	for s.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	l.wake()
	s.workers.Wait()
	_ = l.close()
	if calls := rec.seen(); len(calls) != 0 {
		t.Errorf("an ADD nobody waits for was done: %q", calls)
	}
}
