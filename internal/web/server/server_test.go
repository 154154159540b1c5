// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/web/server"
)

// serve starts a page with a view and an action, and returns it and its address.
func serve(t *testing.T, view server.View) (s *server.Server, address string) {
	t.Helper()
	s, err := server.Listen(t.Context(), "127.0.0.1:0", server.Config{
		Page:  fstest.MapFS{"index.html": {Data: []byte("<title>weft</title>")}, "app.js": {Data: []byte("//")}},
		Views: map[string]server.Source{"health": {Read: view, Interval: time.Millisecond}},
		Actions: map[string]server.Action{"why": func(_ context.Context, form url.Values) (any, error) {
			if form.Get("to") == "" {
				return nil, model.Errorf(model.CodeInvalidConf, "name it", "the destination is missing")
			}
			return form.Get("to"), nil
		}},
		Now: time.Now, Random: rand.Reader, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address, _, _ = strings.Cut(link(t, s), "/#")
	return s, address
}

func link(t *testing.T, s *server.Server) string {
	t.Helper()
	u, err := s.URL()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// token returns the token of a link.
func token(t *testing.T, s *server.Server) string {
	t.Helper()
	_, token, _ := strings.Cut(link(t, s), "token=")
	return token
}

// ask sends a request, and returns the response and its body. Streams are not read.
func ask(t *testing.T, method, address string, header map[string]string, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		if k == "Host" {
			r.Host = v
		}
		r.Header.Set(k, v)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if response.Header.Get("Content-Type") == "text/event-stream" {
		_ = response.Body.Close()
		return response, ""
	}
	b, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response, string(b)
}

// open exchanges the token, and returns the cookie.
func open(t *testing.T, s *server.Server, address string) (cookie string) {
	t.Helper()
	r, body := ask(t, http.MethodPost, address+"/api/session",
		map[string]string{server.RequestHeader: "1", server.TokenHeader: token(t, s)}, "")
	if r.StatusCode != http.StatusNoContent {
		t.Fatalf("session: %s: %s", r.Status, body)
	}
	c := r.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
		t.Errorf("cookie %+v", c)
	}
	return c.Name + "=" + c.Value
}

func data(context.Context, url.Values) (any, error) { return "data", nil }

// Whatever does not come from the page of the user who started it gets nothing.
func TestRefused(t *testing.T) {
	s, address := serve(t, data)
	other, _ := serve(t, data)
	used := token(t, s)
	cookie := open(t, s, address)
	otherCookie := open(t, other, strings.Split(link(t, other), "/#")[0])
	const form = "to=b"
	post := func(header ...string) map[string]string {
		m := map[string]string{"Content-Type": "application/x-www-form-urlencoded", server.RequestHeader: "1", "Cookie": cookie}
		for i := 0; i < len(header); i += 2 {
			m[header[i]] = header[i+1]
			if header[i+1] == "" {
				delete(m, header[i])
			}
		}
		return m
	}
	for _, c := range []struct {
		name, method, path string
		header             map[string]string
		code               int
		want               string
	}{
		{"the page itself", "GET", "/", nil, 200, "weft"},
		{"an action", "POST", "/api/why", post(), 200, `"b"`},
		{"an action of the same origin", "POST", "/api/why", post("Origin", address), 200, `"b"`},
		{"a stream", "GET", "/api/events?view=health", map[string]string{"Cookie": cookie}, 200, ""},
		{"a name that was rebound", "GET", "/", map[string]string{"Host": "evil.example"}, 421, "only at"},
		{"a name that was rebound, with the port", "POST", "/api/why", post("Host", "evil.example:"+port(address)), 421, "only at"},
		{"another address of the host", "GET", "/", map[string]string{"Host": "127.0.0.2:" + port(address)}, 421, "only at"},
		{"no port", "GET", "/", map[string]string{"Host": "127.0.0.1"}, 421, "only at"},
		{"another origin", "POST", "/api/why", post("Origin", "http://evil.example"), 403, "other pages"},
		{"another page of this host", "POST", "/api/why", post("Origin", "http://127.0.0.1:1"), 403, "other pages"},
		{"the null origin", "POST", "/api/why", post("Origin", "null"), 403, "other pages"},
		{"no header: a form", "POST", "/api/why", post(server.RequestHeader, ""), 403, "is missing"},
		{"no header: a session", "POST", "/api/session", map[string]string{server.TokenHeader: token(t, s)}, 403, "is missing"},
		{"no cookie", "POST", "/api/why", post("Cookie", ""), 401, "no session"},
		{"no cookie: a stream", "GET", "/api/events?view=health", nil, 401, "no session"},
		{"a cookie of another page", "POST", "/api/why", post("Cookie", otherCookie), 401, "no session"},
		{"a cookie of another page, renamed", "POST", "/api/why",
			post("Cookie", "weft-"+port(address)+"="+strings.Split(otherCookie, "=")[1]), 401, "no session"},
		{"a cookie that was made up", "POST", "/api/why", post("Cookie", "weft-"+port(address)+"=x"), 401, "no session"},
		{"a token that was used", "POST", "/api/session", post("Cookie", "", server.TokenHeader, used), 401, "used already"},
		{"a token of another page", "POST", "/api/session", post("Cookie", "", server.TokenHeader, token(t, other)), 401, "another page"},
		{"no token", "POST", "/api/session", post("Cookie", ""), 401, "used already"},
		{"a view that does not exist", "GET", "/api/events?view=x", map[string]string{"Cookie": cookie}, 404, "no such view"},
		{"an action that does not exist", "POST", "/api/x", post(), 404, "no such action"},
		{"an action by GET", "GET", "/api/why", map[string]string{"Cookie": cookie}, 404, ""},
		{"a file outside of the page", "GET", "/..%2fserver.go", nil, 404, ""},
	} {
		r, body := ask(t, c.method, address+c.path, c.header, form)
		if r.StatusCode != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s: %s: %s", c.name, r.Status, body)
		}
		h := r.Header
		if !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'self';") || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Access-Control-Allow-Origin") != "" || h.Get("Cache-Control") != "no-store" && r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: headers %v", c.name, h)
		}
	}
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// A token that was used is replaced; the cookies of both browsers hold.
func TestSecondBrowser(t *testing.T) {
	s, address := serve(t, data)
	first := open(t, s, address)
	second := open(t, s, address)
	if first == second {
		t.Error("two browsers have the same cookie")
	}
	for _, cookie := range []string{first, second} {
		// A page that is reloaded has no token.
		r, body := ask(t, http.MethodPost, address+"/api/session", map[string]string{server.RequestHeader: "1", "Cookie": cookie}, "")
		if r.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s", r.Status, body)
		}
	}
}

func TestActionFails(t *testing.T) {
	s, address := serve(t, data)
	r, body := ask(t, http.MethodPost, address+"/api/why", map[string]string{server.RequestHeader: "1", "Cookie": open(t, s, address)}, "")
	if r.StatusCode != http.StatusUnprocessableEntity || body != `{"error":"the destination is missing","hint":"name it"}` {
		t.Errorf("%s: %s", r.Status, body)
	}
}

// A stream sends data when it changes, and while it cannot be read the reason, since when, and as of when the data is.
func TestEvents(t *testing.T) {
	var turn atomic.Int32
	s, address := serve(t, func(context.Context, url.Values) (any, error) {
		switch n := turn.Add(1); {
		case n <= 3:
			return "first", nil
		case n <= 6:
			return nil, model.Errorf(model.CodeNotAvailable, "start them", "no agent answers")
		}
		return "second", nil
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/api/events?view=health", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", open(t, s, address))
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var got []server.Event
	for lines := bufio.NewScanner(response.Body); len(got) < 8 && lines.Scan(); {
		text, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		var e server.Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if len(got) < 8 {
		t.Fatalf("events %+v", got)
	}
	if string(got[0].Data) != `"first"` || got[0].AsOf == 0 || got[1].Data != nil || got[1].AsOf < got[0].AsOf {
		t.Errorf("first %+v, %+v", got[0], got[1])
	}
	for _, e := range got[3:6] {
		if e.Stale == nil || e.Stale.Error != "no agent answers" || e.Stale.Hint != "start them" || e.AsOf != got[2].AsOf ||
			e.Since != got[3].Since || e.Since < e.AsOf {
			t.Errorf("stale %+v", e)
		}
	}
	if got[6].Stale != nil || got[6].Since != 0 || string(got[6].Data) != `"second"` || got[7].Data != nil {
		t.Errorf("second %+v, %+v", got[6], got[7])
	}
}

func TestListen(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:0": "not a loopback address", "10.0.0.1:80": "not a loopback address", ":8000": "not a loopback address",
		"localhost:0": "not a loopback address", "[::]:0": "not a loopback address", "127.0.0.1": "not a loopback address",
	} {
		if _, err := server.Listen(t.Context(), address, server.Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	_, address := serve(t, data)
	if _, err := server.Listen(t.Context(), strings.TrimPrefix(address, "http://"), server.Config{}); err == nil ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("port in use: %v", err)
	}
}
