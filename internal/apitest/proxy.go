// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Request is a request that a proxy received.
type Request struct {
	Method, Path string
	Query        url.Values
	// Token is the bearer token; Code the status of the answer, 0 before it.
	Token string
	Code  int
}

// Proxy forwards requests to a server and records each.
type Proxy struct {
	URL string

	server *http.Server
	mu     sync.Mutex
	seen   []*Request
	conns  map[net.Conn]bool
	// refuse answers a request instead of the server when it returns a status code.
	refuse func(*http.Request) int
}

// Proxy starts a proxy that listens at the server's address, on another port.
func (s *Server) Proxy() *Proxy {
	s.t.Helper()
	host := netip.MustParseAddrPort(s.addr).Addr()
	var l net.Listener
	err := s.inNamespace(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(host, 0).String())
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	to, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &Proxy{URL: "https://" + l.Addr().String(), conns: map[net.Conn]bool{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: s.HTTP().Transport,
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	p.server = &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) }),
		ErrorLog:          log.New(io.Discard, "", 0),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{s.serve}, MinVersion: tls.VersionTLS12},
		ConnState: func(c net.Conn, state http.ConnState) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.conns[c] = state != http.StateClosed && state != http.StateHijacked
		},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.ServeTLS(l, "", "")
	}()
	s.t.Cleanup(func() {
		_ = p.server.Close()
		<-done
	})
	return p
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	seen := &Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
		Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "),
	}
	p.mu.Lock()
	p.seen = append(p.seen, seen)
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != nil {
		if code := refuse(r); code != 0 {
			if code == http.StatusGatewayTimeout { // as the server does when its storage times out
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(code)
			return
		}
	}
	forward.ServeHTTP(&statusRecorder{w, p, seen}, r)
}

// statusRecorder records the status code of an answer.
type statusRecorder struct {
	http.ResponseWriter
	p    *Proxy
	seen *Request
}

func (n *statusRecorder) WriteHeader(code int) {
	n.p.mu.Lock()
	n.seen.Code = code
	n.p.mu.Unlock()
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap lets http.ResponseController flush the answer.
func (n *statusRecorder) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// Seen returns the requests since the last Reset.
func (p *Proxy) Seen() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Request
	for _, r := range p.seen {
		out = append(out, *r)
	}
	return out
}

// Reset forgets the requests.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
}

// Refuse answers requests instead of the server when f returns a status code; nil forwards all again.
func (p *Proxy) Refuse(f func(*http.Request) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

// CloseConnections closes all connections.
func (p *Proxy) CloseConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, open := range p.conns {
		if open {
			_ = c.Close()
		}
	}
	clear(p.conns)
}
