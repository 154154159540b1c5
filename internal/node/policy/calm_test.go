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

// However often a pod has something logged: no more than some of it is in a second, and nothing when the pod has gone.
func TestCalmly(t *testing.T) {
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
	tell := e.denials.calmly(ctx, policy.Place{Pod: model.PodRef{Namespace: "shop", Name: "web"}})
	for range 2*mostTold + 20 {
		tell(nflog.Packet{Prefix: "in:unknown"})
	}
	if n := strings.Count(out.String(), "msg=denied"); n != 2*mostTold+20 || waits != 2 {
		t.Errorf("%d packets are logged, with %d pauses", n, waits)
	}
	cancel()
	out.Reset()
	if tell(nflog.Packet{}); out.Len() > 0 {
		t.Errorf("logged: %s", out.String())
	}
}
