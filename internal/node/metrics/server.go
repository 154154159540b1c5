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

// Limits of the web server: whoever asks is not trusted to be quick or brief.
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
	// Ready says why new pods cannot be served; nil is ready.
	Ready func() error
	// Alive says why the agent must be started again; nil is alive, and so is a server without it.
	Alive func() error
	// Level is the log's; nil has no /loglevel.
	Level *slog.LevelVar
	// Attachments is what /attachments tells, as JSON; nil has none.
	Attachments func() (any, error)
	// Addresses is what /addresses tells, as JSON; nil has none.
	Addresses func() (any, error)
	Log       *slog.Logger
}

// Listen takes an address.
func Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, model.Faultf(model.CodeIO, "choose another metrics.address, or end who has it", "metrics address %q: %w",
			address, err)
	}
	return l, nil
}

// Run answers until ctx ends.
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

// Handler is what the server answers.
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

// probe answers with a word, or with what is wrong.
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

// local tells whether a request comes from the node itself, and answers it otherwise.
func local(w http.ResponseWriter, r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		http.Error(w, r.URL.Path+" is for the node itself alone", http.StatusForbidden)
		return false
	}
	return true
}

// private says who has which address: not everybody's business.
func (s *Server) private(tell func() (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !local(w, r) {
			return
		}
		all, err := tell()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all)
	}
}

// setLevel changes the log's level: it says more about pods to whoever reads the log, so that only the node itself may.
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
		s.Log.Info("log level changed", "was", was.String(), "is", level.String(), "by", "request")
	}
	fmt.Fprintln(w, level)
}
