// SPDX-License-Identifier: Apache-2.0

package flowserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/api/v1alpha1"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/observer"
)

// rights are the answers of an API server: namespaces by user; a user's token is his name.
type rights struct {
	mu      sync.Mutex
	of      map[string][]string
	away    error
	reviews int
	slow    chan struct{} // while it is set, reviews of tokens wait for it
}

func (r *rights) ReviewToken(_ context.Context, token string) (kube.User, error) {
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	if slow != nil {
		<-slow
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reviews++
	if r.away != nil {
		return kube.User{}, r.away
	}
	if _, known := r.of[token]; !known {
		return kube.User{}, kube.ErrNoUser
	}
	return kube.User{Name: token}, nil
}

func (r *rights) MayGetFlows(_ context.Context, u kube.User, namespace string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reviews++
	for _, n := range r.of[u.Name] {
		if n == namespace {
			return true, r.away
		}
	}
	return false, r.away
}

func (r *rights) set(change func(*rights)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// world is a server of flows.
type world struct {
	*rights
	t *testing.T
	v1alpha1.FlowListenerSpec
	send chan flow.Line
	now  func(time.Duration) // moves the server's clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	w := &world{
		rights: &rights{of: map[string][]string{"ann": {"shop"}, "root": {""}, "guest": nil}},
		t:      t, send: make(chan flow.Line),
	}
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	w.now = func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	published := newPublished(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"node1"}}`)
	server, err := New(Config{
		Address: "127.0.0.1:0", API: w.rights, Publication: published.publication(time.After), Log: slog.New(slog.DiscardHandler),
		After: time.After,
		Now:   func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
		Flows: func(ctx context.Context, _ url.Values, to observer.Sink) error {
			if err := errors.Join(to.Send(flow.Line{Begin: &flow.Begin{Node: "node1"}}), to.Flush()); err != nil {
				return err
			}
			for {
				select {
				case l := <-w.send:
					if err := errors.Join(to.Send(l), to.Flush()); err != nil {
						return err
					}
				case <-ctx.Done():
					return nil
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-published.wrote
	w.FlowListenerSpec = published.listener()
	return w
}

// ask asks for flows.
func (w *world) ask(method, path string, header http.Header) *http.Response {
	w.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the key is compared
		VerifyConnection: func(s tls.ConnectionState) error {
			if KeyOf(s.PeerCertificates[0]) != w.Key || s.Version != tls.VersionTLS13 {
				return errors.New("not the published key")
			}
			return nil
		},
	}}}
	r, err := http.NewRequestWithContext(w.t.Context(), method, "https://"+w.Address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = header
	answer, err := client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// TestRefused: without a token that the API server accepts nothing is served, and nothing but flows with one.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		method, path string
		header       http.Header
		want         int
		said         string
	}{
		{"GET", observer.RoutePath, nil, 401, "no bearer token"},
		{"GET", observer.RoutePath, http.Header{"Authorization": {"Basic YTpi"}}, 401, "no bearer token"},
		{"GET", observer.RoutePath, bearer("eve"), 401, "the API server does not accept it"},
		{"GET", observer.RoutePath + "?filter=x", bearer("ann"), 400, "filter"},
		{"POST", observer.RoutePath, bearer("root"), 404, ""},
		{"GET", "/status", bearer("root"), 404, ""},
		{"GET", "/settings", bearer("root"), 404, ""},
	} {
		answer := w.ask(c.method, c.path, c.header)
		b, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != c.want || !strings.Contains(string(b), c.said) {
			t.Errorf("%s %s %v: %d %s, want %d %q", c.method, c.path, c.header, answer.StatusCode, b, c.want, c.said)
		}
	}
	w.set(func(r *rights) { r.away = errors.New("server is away") })
	if answer := w.ask("GET", observer.RoutePath, bearer("bob")); answer.StatusCode != 503 {
		t.Errorf("without an API server: %d", answer.StatusCode)
	}
	plain, err := net.Dial("tcp", w.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	if _, err := fmt.Fprintf(plain, "GET %s HTTP/1.0\r\nAuthorization: Bearer root\r\n\r\n", observer.RoutePath); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(plain); strings.Contains(string(b), "200 OK") || strings.Contains(string(b), "begin") {
		t.Errorf("without TLS: %s", b)
	}
}

func pod(name, addr string) flow.Endpoint {
	return flow.Endpoint{Addr: netip.MustParseAddr(addr), Identity: flow.Identity{Kind: flow.PodEnd, Name: name, Pod: name}}
}

// TestRightEnds: a stream shows flows as long as the caller has the right, and ends when that cannot be checked any more.
func TestRightEnds(t *testing.T) {
	w := newWorld(t)
	answer := w.ask("GET", observer.RoutePath, bearer("ann"))
	lines := bufio.NewScanner(answer.Body)
	l := flow.Line{Flow: &flow.Record{Node: "node1", From: pod("shop/a", "10.0.0.1"), To: pod("bank/b", "10.0.0.2")}}
	mark := func(n uint64) flow.Line { return flow.Line{Lost: &flow.Lost{Node: "node1", New: n}} }
	next := func() string {
		if !lines.Scan() {
			return "over"
		}
		return lines.Text()
	}
	next() // the node
	w.send <- l
	if got := next(); !strings.Contains(got, "shop/a") || strings.Contains(got, "bank/b") || !strings.Contains(got, "hidden") {
		t.Errorf("with the right: %s", got)
	}
	w.rights.mu.Lock()
	before := w.reviews
	w.rights.mu.Unlock()
	for range 100 {
		w.send <- l
		next()
	}
	w.set(func(r *rights) {
		if r.reviews != before {
			t.Errorf("%d reviews of what is known", r.reviews-before)
		}
		r.of["ann"] = []string{"bank"}
	})
	w.now(trusted)
	w.send <- l
	if got := next(); strings.Contains(got, "shop/a") || !strings.Contains(got, "bank/b") {
		t.Errorf("with another right: %s", got)
	}
	w.set(func(r *rights) { r.of["ann"] = nil })
	w.now(trusted)
	w.send <- l
	w.send <- mark(1)
	if got := next(); !strings.Contains(got, `"new":1`) {
		t.Errorf("without the right: %s", got)
	}
	w.set(func(r *rights) { r.away = errors.New("server is away") })
	w.now(trusted)
	w.send <- l
	if got := next(); !strings.Contains(got, "server is away") || next() != "over" {
		t.Errorf("without a server: %s", got)
	}
	w.set(func(r *rights) { r.away = nil; delete(r.of, "ann") })
	if answer := w.ask("GET", observer.RoutePath, bearer("ann")); answer.StatusCode != 401 {
		t.Errorf("with a token that was revoked: %d", answer.StatusCode)
	}
}

// TestMaxStreams: further streams are refused until one ends.
func TestMaxStreams(t *testing.T) {
	w := newWorld(t)
	var all []*http.Response
	for range maxStreams {
		all = append(all, w.ask("GET", observer.RoutePath, bearer("root")))
	}
	if answer := w.ask("GET", observer.RoutePath, bearer("root")); answer.StatusCode != 503 {
		t.Errorf("stream %d: %d", maxStreams+1, answer.StatusCode)
	}
	_ = all[0].Body.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer := w.ask("GET", observer.RoutePath, bearer("guest"))
		if answer.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after one has ended: %d", answer.StatusCode)
		}
	}
}

// TestPendingConnections: one source cannot take the places of others by connections without a token that is accepted.
// Those with one do not count.
func TestPendingConnections(t *testing.T) {
	w := newWorld(t)
	for range maxPending + 1 {
		w.ask("GET", observer.RoutePath, bearer("root"))
	}
	for range maxPending {
		c, err := net.Dial("tcp", w.Address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	dial := func(from string) error {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := tls.DialWithDialer(&d, "tcp", w.Address, &tls.Config{InsecureSkipVerify: true})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := dial("127.0.0.1"); err == nil {
		t.Errorf("connection %d of one source is served", maxPending+1)
	}
	if err := dial("127.0.0.2"); err != nil {
		t.Errorf("another source: %v", err)
	}
}

func TestSource(t *testing.T) {
	for _, c := range []struct{ addr, want string }{
		{"192.0.2.1", "192.0.2.1/32"}, {"::ffff:192.0.2.1", "192.0.2.1/32"}, {"2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"fe80::1%lo", "fe80::/64"},
	} {
		if got := sourceOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.addr), 1))); got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.addr, got, c.want)
		}
	}
}

// TestReviews: while the API server does not answer, requests with tokens that are not known are refused above a limit of
// their source, and take no place of a stream. A token that no user has is asked about once.
func TestReviews(t *testing.T) {
	w := newWorld(t)
	known := w.ask("GET", observer.RoutePath, bearer("root"))
	if known.StatusCode != 200 {
		t.Fatal(known.Status)
	}
	w.set(func(r *rights) { r.slow = make(chan struct{}) })
	var statuses sync.WaitGroup
	const asked = maxPending - 2
	codes := make(chan int, asked)
	for i := range asked {
		statuses.Go(func() { codes <- w.ask("GET", observer.RoutePath, bearer(fmt.Sprintf("made-up-%d", i))).StatusCode })
	}
	for range asked - maxSourceReviews {
		if got := <-codes; got != 503 {
			t.Errorf("a token while others are reviewed: %d", got)
		}
	}
	if got := w.ask("GET", observer.RoutePath, bearer("root")).StatusCode; got != 200 {
		t.Errorf("a known token meanwhile: %d", got)
	}
	w.set(func(r *rights) { close(r.slow); r.slow = nil })
	statuses.Wait()
	for range maxSourceReviews {
		if got := <-codes; got != 401 {
			t.Errorf("a token that no user has: %d", got)
		}
	}
	before := 0
	for i := range 5 {
		if got := w.ask("GET", observer.RoutePath, bearer("nobody")).StatusCode; got != 401 {
			t.Errorf("a token that no user has: %d", got)
		}
		w.set(func(r *rights) {
			if i > 0 && r.reviews != before {
				t.Error("it is reviewed again")
			}
			before = r.reviews
		})
	}
	w.set(func(r *rights) { r.of["nobody"] = []string{""} })
	w.now(refused)
	if got := w.ask("GET", observer.RoutePath, bearer("nobody")).StatusCode; got != 200 {
		t.Errorf("after a while: %d", got)
	}
}

// TestLines: what of each kind of line a caller sees who may get flows of namespace shop.
func TestLines(t *testing.T) {
	api := &rights{of: map[string][]string{"ann": {"shop"}}}
	c, err := newAccess(api, func() time.Time { return time.Unix(1, 0) }).caller(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	r := &restricted{ctx: t.Context(), caller: c, shown: map[holder]bool{}}
	id := func(e flow.Endpoint) *flow.Identity { return &e.Identity }
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	web, api2 := pod("shop/web", "10.0.0.1"), pod("bank/api", "10.0.0.2")
	outside := flow.Endpoint{Addr: netip.MustParseAddr("192.0.2.1"), Identity: flow.Identity{Kind: flow.OutsideEnd}}
	vm := flow.Endpoint{Addr: b, Identity: flow.Identity{Kind: flow.VMEnd, Name: "bank/vault", Pod: "bank/launcher", Network: "bank/net"}}
	node := flow.Endpoint{Addr: b, Identity: flow.Identity{Kind: flow.NodeEnd, Name: "shop", Node: "shop"}}
	decide := func(directions ...string) (out []flow.Decision) {
		for _, d := range directions {
			out = append(out, flow.Decision{Direction: d, Policies: []model.PolicyKey{{Name: d}}, Text: "rule"})
		}
		return out
	}
	for _, c := range []struct {
		name string
		line flow.Line
		want string // "" is nothing
		not  string
	}{
		{"the node", flow.Line{Begin: &flow.Begin{Node: "node1", Notes: []string{"bank/vault"}}}, "node1", "bank"},
		{"its own holder", flow.Line{Holder: &flow.Holder{Addr: a, Identity: id(web)}}, "shop/web", "bank"},
		{"another one", flow.Line{Holder: &flow.Holder{Addr: b, Identity: id(api2)}}, "", ""},
		{"its address is free", flow.Line{Holder: &flow.Holder{Addr: a}}, "10.0.0.1", ""},
		{"nor the other", flow.Line{Holder: &flow.Holder{Addr: b}}, "", ""},
		{"once is enough", flow.Line{Holder: &flow.Holder{Addr: a}}, "", ""},
		{"of another network", flow.Line{Holder: &flow.Holder{Addr: a, Network: "bank/net"}}, "", ""},
		{"a flow out of it", flow.Line{Flow: &flow.Record{From: web, To: outside}}, "shop/web", ""},
		{"a flow into it", flow.Line{Flow: &flow.Record{From: vm, To: web, Decisions: decide("egress", "ingress")}}, `"ingress"`, "bank"},
		{"and not the other's policies", flow.Line{Flow: &flow.Record{From: vm, To: web, Decisions: decide("egress")}}, "hidden", "rule"},
		{"between others", flow.Line{Flow: &flow.Record{From: vm, To: api2}}, "", ""},
		{"of others, to outside", flow.Line{Flow: &flow.Record{From: api2, To: outside}}, "", ""},
		{"of a node with the name of the namespace", flow.Line{Flow: &flow.Record{From: node, To: api2}}, "", ""},
		{"of nodes", flow.Line{Flow: &flow.Record{From: node, To: outside}}, "", ""},
		{"to its Service", flow.Line{Flow: &flow.Record{From: api2, To: vm, Via: &web}}, "shop/web", "bank"},
		{"losses", flow.Line{Lost: &flow.Lost{Node: "node1", New: 7}}, "7", ""},
		{"the end of the past", flow.Line{Known: true}, "true", ""},
	} {
		before, err := json.Marshal(c.line)
		if err != nil {
			t.Fatal(err)
		}
		l, show, err := r.line(c.line)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if show != (c.want != "") || show && (!strings.Contains(string(got), c.want) || c.not != "" && strings.Contains(string(got), c.not)) {
			t.Errorf("%s: shown %v, %s; want %q, not %q", c.name, show, got, c.want, c.not)
		}
		if after, _ := json.Marshal(c.line); string(after) != string(before) { // others read it, too
			t.Errorf("%s: the line has become %s", c.name, after)
		}
	}
}
