// SPDX-License-Identifier: Apache-2.0

package adminapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// served answers GET /where with the namespace that was passed.
func served(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- adminapi.Routes{"POST /where": func(r *http.Request) (any, error) {
			ns, err := adminapi.Namespace(r, "pod")
			if err != nil || ns == nil {
				return uint64(0), err
			}
			id, err := ns.ID()
			if again, err := adminapi.Namespace(r, "pod"); again != nil || err != nil {
				t.Errorf("a second look: %v, %v", again, err)
			}
			return id, errors.Join(err, ns.Close())
		}}.Serve(ctx, socket, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			return socket
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// descriptors returns this process's open file descriptors.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestNamespace: the namespace passed with a request is the one that arrives; without one it is nil; a descriptor that
// is no network namespace is an error.
func TestNamespace(t *testing.T) {
	socket := served(t)
	where := func(ns *netns.NS) (id uint64, err error) {
		err = adminapi.Request{
			Socket: socket, Method: http.MethodPost, Path: "/where", NS: ns, Body: "x", Server: "agent",
		}.Do(t.Context(), &id)
		return id, err
	}
	pod := nettest.NS(t, "pod")
	want, err := pod.ID()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := where(pod); err != nil || got != want {
		t.Errorf("%d, %v, want %d", got, err, want)
	}
	if got, err := where(nil); err != nil || got != 0 {
		t.Errorf("without one: %d, %v", got, err)
	}
}

// TestDescriptors: descriptors that no handler takes are closed, however many there are, and a file is no namespace.
func TestDescriptors(t *testing.T) {
	socket := served(t)
	const request = "POST /where HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
	send := func(n int) string {
		t.Helper()
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(f.Fd())
		}
		if _, _, err := c.WriteMsgUnix([]byte(request), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, _ = c.Read(b)
		return string(b[:n])
	}
	send(1)
	before := descriptors(t)
	if got := send(1); !strings.Contains(got, "400 Bad Request") || !strings.Contains(got, "not a network namespace") {
		t.Errorf("a file: %s", got)
	}
	for range 50 {
		send(2)
		send(30)
	}
	for until := time.Now().Add(time.Minute); descriptors(t) > before+2; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d descriptors are open, %d before", descriptors(t), before)
		}
	}
}
