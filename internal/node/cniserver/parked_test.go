// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// idle opens n connections that send part of a request, and no more.
func idle(t *testing.T, socket string, n int, part []byte) []net.Conn {
	t.Helper()
	all := make([]net.Conn, n)
	for i := range all {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if len(part) > 0 { // a refused connection fails on a write
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		all[i] = conn
	}
	return all
}

func threads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// TestIdleConnections: connections that send no or half a request delay no caller, cost no threads, and are ended.
func TestIdleConnections(t *testing.T) {
	frame := frameOf(oneNetwork, false, vars("DEL", "c")...)
	for name, part := range map[string][]byte{
		"nothing": nil, "half a header": frame[:7], "half a request": frame[:len(frame)-5],
	} {
		t.Run(name, func(t *testing.T) {
			socket, ns := serve(t, &recorder{}), nettest.NS(t, "c")
			ask(t, socket, "", nil, "CNI_COMMAND=VERSION") // exclude the cost of the first call
			adds := func(prefix string) time.Duration {
				t.Helper()
				start := time.Now()
				for i := range 20 {
					if a := ask(t, socket, oneNetwork, ns, vars("ADD", fmt.Sprint(prefix, i))...); a.exit != 0 {
						t.Fatalf("ADD: %+v", a)
					}
				}
				return time.Since(start)
			}
			without := adds("a")
			before := threads(t)
			conns := idle(t, socket, 300, part)
			if took := adds("c"); took > readLimit/2+5*without {
				t.Errorf("20 ADDs took %s with 300 idle connections, and %s without", took, without)
			}
			// The first connections get a worker each until these notice that no request arrives; how many depends on
			// the host's load.
			if more := threads(t) - before; more > 150 {
				t.Errorf("300 idle connections cost %d threads", more)
			}
			last := conns[len(conns)-1]
			_ = last.SetDeadline(time.Now().Add(time.Minute))
			if n, err := last.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
				t.Errorf("an idle connection is not ended: %v", err)
			}
		})
	}
}

// TestLateRequestIsDone: a request that arrives late, and in pieces, is done when complete, with its file descriptor.
func TestLateRequestIsDone(t *testing.T) {
	rec := &recorder{}
	socket, ns := serve(t, rec), nettest.NS(t, "c")
	idle(t, socket, spareWorkers, nil) // all spare workers wait: the next connection is parked
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	time.Sleep(50 * time.Millisecond)
	frame := frameOf(oneNetwork[:len(oneNetwork)-1]+strings.Repeat(" ", 600<<10)+"}", true, vars("ADD", "late")...)
	if _, _, err := conn.WriteMsgUnix(frame[:5], syscall.UnixRights(ns.Fd()), nil); err != nil {
		t.Fatal(err)
	}
	for rest := frame[5:]; len(rest) > 0; {
		n := min(100<<10, len(rest))
		if _, err := conn.Write(rest[:n]); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
		time.Sleep(5 * time.Millisecond)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 1<<10)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if a := parseAnswer(t, b[:n]); a.exit != 0 || len(rec.seen()) != 1 {
		t.Errorf("a late request: %+v", a)
	}
}

// TestTooManyIdleConnections: idle connections beyond maxParked are refused, until others end.
func TestTooManyIdleConnections(t *testing.T) {
	socket := serve(t, &recorder{})
	conns := idle(t, socket, maxParked+spareWorkers+50, nil)
	refused := 0
	for end := time.Now().Add(time.Minute); refused < 50 && time.Now().Before(end); {
		refused = 0
		for _, conn := range conns[maxParked:] {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); !os.IsTimeout(err) {
				refused++
			}
		}
	}
	if refused < 50 {
		t.Errorf("%d of %d idle connections were refused, want 50", refused, len(conns))
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	if a := ask(t, socket, "", nil, "CNI_COMMAND=VERSION"); a.exit != 0 {
		t.Errorf("after them: %+v", a)
	}
}
