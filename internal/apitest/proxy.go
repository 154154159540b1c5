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

// Request is one that a proxy saw.
type Request struct {
	Method, Path string
	Query        url.Values
	// Token is the bearer token; Code what was answered, 0 before.
	Token string
	Code  int
}

// Proxy stands before a server and notes each request.
type Proxy struct {
	URL string

	server *http.Server
	mu     sync.Mutex
	seen   []*Request
	conns  map[net.Conn]bool
	// refuse answers a request in the server's place when it gives a code.
	refuse func(*http.Request) int
}

// Proxy makes a proxy that listens beside the server.
func (s *Server) Proxy() *Proxy {
	s.t.Helper()
	host := netip.MustParseAddrPort(s.addr).Addr()
	var l net.Listener
	err := s.inside(func() (err error) {
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
			if code == http.StatusGatewayTimeout { // as the server does when its storage is late
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(code)
			return
		}
	}
	forward.ServeHTTP(&noting{w, p, seen}, r)
}

// noting notes the code of an answer.
type noting struct {
	http.ResponseWriter
	p    *Proxy
	seen *Request
}

func (n *noting) WriteHeader(code int) {
	n.p.mu.Lock()
	n.seen.Code = code
	n.p.mu.Unlock()
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap lets the answer be flushed.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// Seen are the requests since the last Reset.
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

// Refuse answers requests in the server's place where f gives a code; nil ends that.
func (p *Proxy) Refuse(f func(*http.Request) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

// Cut breaks all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, open := range p.conns {
		if open {
			_ = c.Close()
		}
	}
	clear(p.conns)
}
