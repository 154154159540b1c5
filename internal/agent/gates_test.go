// SPDX-License-Identifier: Apache-2.0

package agent

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

// A gate is asked until it answers that all is well, and not for ever.
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
	a := &agent{cfg: Config{After: func(d time.Duration) <-chan time.Time {
		c := make(chan time.Time, 1)
		if waited++; d == gateEvery || waited > 9 {
			c <- at
		}
		return c
	}}}
	if err := a.gates(t.Context(), []string{server.URL}); err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	a.cfg.After = func(d time.Duration) <-chan time.Time {
		c := make(chan time.Time, 1)
		if d == gateLimit {
			c <- at
		}
		return c
	}
	shut = true
	err := a.gates(t.Context(), []string{server.URL})
	var f *model.Fault
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain || !strings.Contains(f.Msg, server.URL+": status 503") {
		t.Errorf("%v", err)
	}
}
