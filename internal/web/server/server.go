// SPDX-License-Identifier: Apache-2.0

// Package server serves weft's page on a loopback address to the user who started it. A page of another origin, another
// user of the host, and a name that is rebound to the address get nothing.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// View returns what a view shows now, a value that is sent as JSON. query are the page's choices.
type View func(ctx context.Context, query url.Values) (any, error)

// Source is a view that is read while a page shows it: every Interval, or less often if reading takes long, as of a cluster
// of many nodes.
type Source struct {
	Read     View
	Interval time.Duration
}

// Reading a view takes at most one part of restShare of the time, but maxRest is the longest pause.
const (
	restShare = 4
	maxRest   = time.Minute
)

// pause returns the time until the next reading after one that took a while.
func (s Source) pause(took time.Duration) time.Duration {
	return max(s.Interval, min(took*(restShare-1), maxRest))
}

// Action does what a button asks for, and returns a value that is sent as JSON.
type Action func(ctx context.Context, form url.Values) (any, error)

// Config is what a Server serves.
type Config struct {
	// Page has index.html and what it loads.
	Page fs.FS
	// Views and Actions by name.
	Views   map[string]Source
	Actions map[string]Action
	Log     *slog.Logger
	// Now is the clock, Random the source of tokens and cookies: crypto/rand's.
	Now    func() time.Time
	Random io.Reader
}

// Server is a page and its data.
type Server struct {
	cfg      Config
	listener net.Listener
	session  *session
	actions  chan struct{} // limits actions that run at the same time
}

// Limits.
const (
	maxActions    = 2
	maxForm       = 16 << 10 // bytes
	headerTimeout = 5 * time.Second
	closeTimeout  = 2 * time.Second
)

// Listen listens on an address, which must be a loopback one: 127.0.0.1:0 chooses a port.
func Listen(ctx context.Context, address string, cfg Config) (*Server, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return nil, model.Errorf(model.CodeInvalidConf, "for example 127.0.0.1:0: the page is for this host only",
			"%q is not a loopback address and a port", address)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "choose another port, or 0", "page: %w", err)
	}
	s, err := newSession(l.Addr().String(), cfg.Random)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Server{cfg: cfg, listener: l, session: s, actions: make(chan struct{}, maxActions)}, nil
}

// URL returns the address of the page for the user who started it, with a token that opens one browser.
func (s *Server) URL() (string, error) {
	token, err := s.session.Token()
	return "http://" + s.session.host + "/#token=" + token, err
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	h := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends streams
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("page: %w", err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := h.Shutdown(limited); err != nil {
		_ = h.Close() // a client that does not read
	}
	return nil
}

// Handler returns the routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(s.cfg.Page))
	mux.HandleFunc("POST /api/session", s.session.open)
	mux.Handle("GET /api/events", s.session.required(http.HandlerFunc(s.events)))
	mux.Handle("POST /api/{action}", s.session.required(http.HandlerFunc(s.act)))
	return s.session.guard(mux)
}

// act runs an action.
func (s *Server) act(w http.ResponseWriter, r *http.Request) {
	do, known := s.cfg.Actions[r.PathValue("action")]
	if !known {
		refuse(w, http.StatusNotFound, "there is no such action")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "the form cannot be read: "+err.Error())
		return
	}
	select {
	case s.actions <- struct{}{}:
		defer func() { <-s.actions }()
	case <-r.Context().Done():
		return
	}
	v, err := do(r.Context(), r.PostForm)
	if err != nil {
		writeJSON(w, http.StatusUnprocessableEntity, failure(err))
		return
	}
	writeJSON(w, http.StatusOK, v)
}
