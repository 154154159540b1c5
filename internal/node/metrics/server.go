// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weft-net/weft/internal/model"
)

// Limits of the web server: its clients are not trusted.
const (
	askLimit    = 5 * time.Second
	answerLimit = 30 * time.Second
	headerLimit = 8 << 10 // bytes
	levelLimit  = 16      // bytes
	closeLimit  = time.Second
)

// Server is the agent's web server.
type Server struct {
	Metrics *Metrics
	// Ready returns why new pods cannot be served; nil is ready.
	Ready func() error
	// Alive returns why the agent must be restarted; nil is alive, and so is a server without the function.
	Alive func() error
	// Level is the log level; without it there is no /loglevel.
	Level *slog.LevelVar
	// Attachments returns the content of /attachments; without it there is none.
	Attachments func() (any, error)
	// Addresses returns the content of /addresses; without it there is none.
	Addresses func() (any, error)
	Log       *slog.Logger
}

// Listen listens on an address.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "choose another metrics.address, or stop the process that uses the port", "metrics address %q: %w",
			address, err)
	}
	return l, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	web := &http.Server{
		Handler: s.Handler(), ReadTimeout: askLimit, WriteTimeout: answerLimit, MaxHeaderBytes: headerLimit,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() {
		soon, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		if web.Shutdown(soon) != nil {
			_ = web.Close()
		}
	})
	defer stop()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Handler returns the server's handler.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", probe(s.Alive, "ok"))
	mux.HandleFunc("GET /readyz", probe(s.Ready, "ready"))
	if s.Level != nil {
		mux.HandleFunc("GET /loglevel", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, s.Level.Level()) })
		mux.HandleFunc("PUT /loglevel", s.setLevel)
	}
	if s.Attachments != nil {
		mux.HandleFunc("GET /attachments", s.private(s.Attachments))
	}
	if s.Addresses != nil {
		mux.HandleFunc("GET /addresses", s.private(s.Addresses))
	}
	return mux
}

// probe responds with a word, or with status 503 and the error.
func probe(check func() error, well string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if check != nil {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, well)
	}
}

// local reports whether a request comes from the node itself; otherwise it responds with an error.
func local(w http.ResponseWriter, r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		http.Error(w, r.URL.Path+" is available on the node itself only", http.StatusForbidden)
		return false
	}
	return true
}

// private serves a value on the node itself only: pods' addresses are not public.
func (s *Server) private(get func() (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !local(w, r) {
			return
		}
		all, err := get()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all)
	}
}

// setLevel changes the log level, from the node itself only: a lower level discloses more about pods.
func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if !local(w, r) {
		return
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, levelLimit))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(strings.TrimSpace(string(b)))); err != nil {
		http.Error(w, fmt.Sprintf("level %q is not one of DEBUG, INFO, WARN, ERROR", b), http.StatusBadRequest)
		return
	}
	if was := s.Level.Level(); was != level {
		s.Level.Set(level)
		s.Log.Info("log level changed", "old", was.String(), "new", level.String(), "reason", "request")
	}
	fmt.Fprintln(w, level)
}
