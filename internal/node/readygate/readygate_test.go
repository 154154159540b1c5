// SPDX-License-Identifier: Apache-2.0

package readygate

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestGates: a gate is polled until it responds with success, for a limited time.
func TestGates(t *testing.T) {
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	asked, shut := 0, false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 || shut {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	at, waited := time.Unix(0, 0), 0
	after := func(d time.Duration) <-chan time.Time {
		c := make(chan time.Time, 1)
		if waited++; d == pollPeriod || waited > 9 {
			c <- at
		}
		return c
	}
	if err := Wait(t.Context(), []string{server.URL}, after); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	shut = true
	limit := make(chan time.Time, 1)
	after = func(d time.Duration) <-chan time.Time {
		if d == timeout {
			return limit
		}
		limit <- at // it has been asked once
		return nil
	}
	err := Wait(t.Context(), []string{server.URL}, after)
	wantShut(t, err, server.URL+": not ready within 30s: status 503")
}

// TestGatesHang: the limit holds for all gates together, including a response that does not come.
func TestGatesHang(t *testing.T) {
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	limit := make(chan time.Time, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		limit <- time.Unix(0, 0)
		<-r.Context().Done()
	}))
	defer server.Close()
	after := func(d time.Duration) <-chan time.Time {
		if d == timeout {
			return limit
		}
		return nil
	}
	err := Wait(t.Context(), []string{server.URL}, after)
	wantShut(t, err, server.URL+": not ready within 30s")
}

func wantShut(t *testing.T, err error, want string) {
	t.Helper()
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain || !strings.Contains(f.Msg, want) {
		t.Errorf("%v, want %s", err, want)
	}
}
