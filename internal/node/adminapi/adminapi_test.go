// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// TestRequests: requests are answered, an error has its code and its hint, only the owner can connect, and the socket
// is removed with its server.
func TestRequests(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(socket, nil, 0o600); err != nil { // what one before has left
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Routes{
			"GET /twice": func(r *http.Request) (any, error) { return r.FormValue("n") + r.FormValue("n"), nil },
			"POST /no": func(*http.Request) (any, error) {
				return nil, model.Errorf(model.CodeTryAgain, "ask again", "not yet")
			},
			"GET /broken": func(*http.Request) (any, error) { return nil, errors.New("broken") },
		}.Serve(ctx, socket, slog.New(slog.DiscardHandler))
	}()
	q := Request{
		Socket: socket, Method: http.MethodGet, Path: "/twice", Query: url.Values{"n": {"x&"}}, Server: "agent",
		Hint: "start it",
	}
	var got string
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		err := q.Do(t.Context(), &got)
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(socket); got != "x&x&" || err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v", got, info, err)
	}
	for _, c := range []struct {
		method, path string
		code         model.Code
		hint, says   string
	}{
		{http.MethodPost, "/no", model.CodeTryAgain, "ask again", "not yet"},
		{http.MethodGet, "/broken", model.CodeInternal, "", "broken"},
		{http.MethodGet, "/nothing", model.CodeIO, "start it", "no agent answers at"},
		{http.MethodPost, "/twice", 0, "", "405 Method Not Allowed"},
	} {
		q.Method, q.Path = c.method, c.path
		err := q.Do(t.Context(), &got)
		var f *model.Error
		if is := errors.As(err, &f); err == nil || !strings.Contains(err.Error(), c.says) || is != (c.code != 0) ||
			is && (f.Code != c.code || f.Hint != c.hint) {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var f *model.Error
	if err := q.Do(t.Context(), &got); !errors.As(err, &f) || f.Hint != "start it" || !errors.Is(err, ErrNoServer) ||
		!strings.Contains(err.Error(), "no agent answers at "+socket) {
		t.Errorf("nobody is there: %v", err)
	}
}

// TestNoSocket: an agent whose socket cannot be created keeps working and logs it.
func TestNoSocket(t *testing.T) {
	var log bytes.Buffer
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 200))
	if err := (Routes{}).Serve(t.Context(), long, slog.New(slog.NewTextHandler(&log, nil))); err != nil ||
		!strings.Contains(log.String(), "admin socket is not available") {
		t.Errorf("%v, %s", err, log.String())
	}
}

// TestStalledClient: a client that does not read is taken for gone, and its stream ends.
func TestStalledClient(t *testing.T) {
	ended := make(chan error, 1)
	endless := Stream(func(_ context.Context, lines *Lines) error {
		for {
			if err := lines.Send(strings.Repeat("x", 1000)); err != nil {
				ended <- err
				return err
			}
		}
	})
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endless.serveWithin(50*time.Millisecond, w, r, "GET /", slog.New(slog.DiscardHandler))
	})}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- web.Serve(l) }()
	defer func() { _ = web.Close(); <-done }()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stream does not end")
	}
}
