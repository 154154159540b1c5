// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/observer"
)

const (
	// maxStreams bounds the requests at the same time, and maxConnections the connections, also of clients without a token.
	maxStreams, maxConnections = 64, 256
	// headerTime limits the time until a request has arrived, also that of the handshake, idleTime that between two requests,
	// and maxHeader is the size of a request in bytes.
	headerTime, idleTime, maxHeader = 5 * time.Second, 10 * time.Second, 16 << 10
)

// Config configures a Server.
type Config struct {
	// Address is HOST:PORT; without a host it listens on all addresses.
	Address string
	API     Reviewer
	// Publication publishes the address and the server's key.
	Publication Publication
	// Flows streams lines until ctx ends; the values are the parameters of observer.RoutePath.
	Flows func(ctx context.Context, values url.Values, to observer.Sink) error
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Server serves flows over TLS.
type Server struct {
	cfg     Config
	access  *access
	tls     *tls.Config
	key     string
	streams chan struct{}
	// pending are connections without an accepted token, reviewing are tokens that the API server is asked about.
	pending, reviewing *counters
	reviews            chan struct{}
}

// New returns a server with a new key.
func New(c Config) (*Server, error) {
	certificate, key, err := newCertificate()
	if err != nil {
		return nil, fmt.Errorf("observe.listen: key: %w", err)
	}
	return &Server{
		cfg: c, access: newAccess(c.API, c.Now), key: key, streams: make(chan struct{}, maxStreams),
		pending: newCounters(), reviewing: newCounters(), reviews: make(chan struct{}, maxReviews),
		tls: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
			Time: c.Now,
		},
	}, nil
}

// newCertificate returns a certificate of a new key, and the key's hash. Clients check nothing else of it.
func newCertificate() (tls.Certificate, string, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weft-agent"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280, 4.1.2.5: never
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, KeyOf(leaf), nil
}

// KeyOf returns the hash of a certificate's public key, as in a FlowListener.
func KeyOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// published is what the server publishes.
func (s *Server) published(l net.Listener) v1alpha1.FlowListenerSpec {
	address := l.Addr().String()
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
		address = fmt.Sprintf(":%d", a.Port)
	}
	return v1alpha1.FlowListenerSpec{Address: address, Key: s.key}
}

// listen listens as soon as it can: the pods' network does not wait for a port that another program has. The listener is nil
// when ctx has ended.
func (s *Server) listen(ctx context.Context) net.Listener {
	for failed := false; ; failed = true {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.cfg.Address)
		if err == nil {
			return l
		}
		if !failed && ctx.Err() == nil {
			s.cfg.Log.Error("flows cannot be served yet; choose another port if a program needs this one",
				"observe.listen", s.cfg.Address, "err", err)
		}
		select {
		case <-s.cfg.After(retryPause):
		case <-ctx.Done():
			return nil
		}
	}
}

// Run listens and serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	l := s.listen(ctx)
	if l == nil {
		return nil
	}
	l = listener{netutil.LimitListener(l, maxConnections), s.pending}
	web := &http.Server{
		Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: withConn,
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug), BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = web.Close() })()
	published, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() { s.cfg.Publication.publish(published, s.published(l)); close(over) }()
	defer func() { cancel(); <-over }()
	if err := web.Serve(tls.NewListener(l, s.tls)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("observe.listen %q: %w", s.cfg.Address, err)
	}
	return nil
}

// serve serves one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || r.URL.Path != observer.RoutePath {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Connection", "close") // unless the token is accepted: the place is for others
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		adminapi.Refuse(w, http.StatusUnauthorized, model.Errorf(model.CodeInvalidConf, "send Authorization: Bearer TOKEN",
			"the request has no bearer token"))
		return
	}
	from := connOf(r)
	c, err := s.review(r.Context(), from.source, token)
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, kube.ErrNoUser) {
			status, err = http.StatusUnauthorized, model.Errorf(model.CodeInvalidConf, "get a new one", "%w", err)
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		adminapi.Refuse(w, status, err)
		return
	}
	from.known()
	w.Header().Del("Connection")
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		adminapi.Refuse(w, http.StatusServiceUnavailable, model.Errorf(model.CodeNotAvailable, "ask again later",
			"%d streams are open, and no more are served", maxStreams))
		return
	}
	values := r.URL.Query()
	filter, err := takeFilter(values)
	if err != nil {
		adminapi.Refuse(w, http.StatusBadRequest, err)
		return
	}
	adminapi.Stream(func(ctx context.Context, lines *adminapi.Lines) error {
		return s.cfg.Flows(ctx, values, &restricted{
			Sink: observer.Lines{Lines: lines}, ctx: ctx, caller: c, filter: filter, shown: map[holder]bool{},
		})
	}).Serve(w, r, s.cfg.Log)
}

func manyReviews() error {
	return model.Errorf(model.CodeNotAvailable, "ask again later", "too many tokens are being reviewed")
}

// review returns the user of a token. Of tokens that are not known few are reviewed at a time: with a slow API server one
// source does not keep others from being asked about.
func (s *Server) review(ctx context.Context, source netip.Prefix, token string) (*caller, error) {
	if s.access.knows(token) {
		return s.access.caller(ctx, token)
	}
	if !s.reviewing.enter(source, maxSourceReviews) {
		return nil, manyReviews()
	}
	defer s.reviewing.leave(source)
	select {
	case s.reviews <- struct{}{}:
		defer func() { <-s.reviews }()
	default:
		return nil, manyReviews()
	}
	return s.access.caller(ctx, token)
}

// takeFilter takes the filter out of the parameters: it is applied to what the caller may see, because a filter by the name
// of an end would tell that name.
func takeFilter(values url.Values) (flow.Filter, error) {
	text := values.Get(observer.ParameterFilter)
	values.Del(observer.ParameterFilter)
	if text == "" {
		return flow.Filter{}, nil
	}
	var conditions []flow.Condition
	if err := json.Unmarshal([]byte(text), &conditions); err != nil {
		return flow.Filter{}, model.Errorf(model.CodeDecode, "", "filter: %w", err)
	}
	return flow.NewFilter(conditions)
}
