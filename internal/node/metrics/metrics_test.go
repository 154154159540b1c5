// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func newServer(t *testing.T, ready func() error) *Server {
	t.Helper()
	return &Server{
		Metrics: New("v1"), Ready: ready, Level: new(slog.LevelVar), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

func ask(t *testing.T, s *Server, method, path, body, from string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestMetrics(t *testing.T) {
	s := newServer(t, nil)
	s.Metrics.Call("ADD", 0, 3*time.Millisecond)
	s.Metrics.Call("ADD", 11, time.Second)
	s.Metrics.Call("../evil\"", 4, 0)
	s.Metrics.Repaired([]string{
		"route 10.0.0.0/8 via x", "no addr 1.2.3.4/32 dev x", "nft table inet weft: chain x", "iptables -N X", "namespace",
	})
	s.Metrics.Collected("pods", 2)
	s.Metrics.Collected("pods", 0)
	s.Metrics.GC("done")
	s.Metrics.Gauge("weft_attachments", "x", func() float64 { return 7 })
	s.Metrics.Gauges("weft_pool_blocks", "x", "pool", func() map[string]float64 { return map[string]float64{"p": 3} })
	code, text := ask(t, s, "GET", "/metrics", "", "192.0.2.1:1")
	for _, want := range []string{
		`weft_cni_call_duration_seconds_count{code="0",verb="ADD"} 1`,
		`weft_cni_call_duration_seconds_bucket{code="0",verb="ADD",le="0.005"} 1`,
		`weft_cni_call_duration_seconds_count{code="11",verb="ADD"} 1`, `weft_cni_call_duration_seconds_count{code="4",verb="other"} 1`,
		`weft_repairs_total{kind="route"} 1`, `weft_repairs_total{kind="addr"} 1`, `weft_repairs_total{kind="nft"} 1`,
		`weft_repairs_total{kind="iptables"} 1`, `weft_repairs_total{kind="other"} 1`,
		`weft_gc_attachments_total{network="pods"} 2`, `weft_gc_runs_total{outcome="done"} 1`, "weft_attachments 7",
		`weft_pool_blocks{pool="p"} 3`, `weft_build_info{version="v1"} 1`,
		"process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%d, missing: %s", code, want)
		}
	}
	var none *Metrics
	none.Call("ADD", 0, 0)
	none.Repaired([]string{"x"})
	none.Collected("x", 1)
	none.GC("done")
	none.Gauge("x", "x", nil)
	none.Gauges("x", "x", "x", nil)
	none.Counter("x", "x", nil)
	none.Counters("x", "x", "x", nil)
}

func TestReady(t *testing.T) {
	var why error
	s := newServer(t, func() error { return why })
	if code, text := ask(t, s, "GET", "/readyz", "", "192.0.2.1:1"); code != 200 || text != "ready\n" {
		t.Errorf("%d %s", code, text)
	}
	why = errors.New("no addresses")
	if code, text := ask(t, s, "GET", "/readyz", "", "192.0.2.1:1"); code != 503 || text != "no addresses\n" {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := ask(t, s, "GET", "/healthz", "", "192.0.2.1:1"); code != 200 {
		t.Errorf("%d", code)
	}
	s.Alive = func() error { return errors.New("writes are stuck") }
	if code, text := ask(t, s, "GET", "/healthz", "", "192.0.2.1:1"); code != 503 || text != "writes are stuck\n" {
		t.Errorf("%d %s", code, text)
	}
}

func TestLogLevel(t *testing.T) {
	s := newServer(t, nil)
	for _, c := range []struct {
		method, body, from string
		code               int
		says               string
		level              slog.Level
	}{
		{"GET", "", "192.0.2.1:1", 200, "INFO\n", slog.LevelInfo},
		{"PUT", "debug\n", "127.0.0.1:1", 200, "DEBUG\n", slog.LevelDebug},
		{"PUT", "WARN", "[::1]:1", 200, "WARN\n", slog.LevelWarn},
		{"PUT", "ERROR", "192.0.2.1:1", 403, "/loglevel is available on the node itself only\n", slog.LevelWarn},
		{"PUT", "loud", "127.0.0.1:1", 400, "level \"loud\" is not one of DEBUG, INFO, WARN, ERROR\n", slog.LevelWarn},
		{
			"PUT", strings.Repeat("x", 100), "127.0.0.1:1", 400,
			"level \"xxxxxxxxxxxxxxxx\" is not one of DEBUG, INFO, WARN, ERROR\n", slog.LevelWarn,
		},
	} {
		code, text := ask(t, s, c.method, "/loglevel", c.body, c.from)
		if code != c.code || text != c.says || s.Level.Level() != c.level {
			t.Errorf("%s %q from %s: %d %q %s", c.method, c.body, c.from, code, text, s.Level.Level())
		}
	}
}

// TestRun: the server responds on a real socket, and closes it when it ends.
func TestRun(t *testing.T) {
	s := newServer(t, func() error { return nil })
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	r, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if string(b) != "ready\n" {
		t.Errorf("%s", b)
	}
	if _, err := Listen(address); err == nil || !strings.Contains(err.Error(), "metrics address \""+address+"\": ") {
		t.Errorf("%v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	again, err := Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
