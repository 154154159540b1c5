// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/kernel/nflog"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// TestRateLimited: packets logged by a pod's own rules are limited per second, and nothing is logged after the pod is
// gone.
func TestRateLimited(t *testing.T) {
	var out bytes.Buffer
	now, waits := time.Unix(0, 0), 0
	after := func(d time.Duration) <-chan time.Time {
		now, waits = now.Add(d), waits+1
		c := make(chan time.Time)
		close(c)
		return c
	}
	e := New(Config{Log: slog.New(slog.NewTextHandler(&out, nil)), Now: func() time.Time { return now }, After: after})
	ctx, cancel := context.WithCancel(t.Context())
	handle := e.denials.rateLimited(ctx, policy.EnforcementPoint{Pod: model.PodRef{Namespace: "shop", Name: "web"}})
	for range 2*maxLoggedPerSecond + 20 {
		handle(nflog.Packet{Prefix: "in:unknown"})
	}
	if n := strings.Count(out.String(), `msg="packet is denied"`); n != 2*maxLoggedPerSecond+20 || waits != 2 {
		t.Errorf("%d packets are logged, with %d pauses", n, waits)
	}
	cancel()
	out.Reset()
	if handle(nflog.Packet{}); out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
}
