// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestNameTakenByADyingLink: the kernel refuses a pair because a dead link in the pod has the name, and the reaper
// deletes that link before Apply reads. That is a race, not a name in use; a live link of that name is.
func TestNameTakenByADyingLink(t *testing.T) {
	s := pair(t)
	f := port(1)
	refused := fmt.Errorf("other end: %w", ErrExists)
	taken := func() error {
		a := &apply{spaces: s, host: newView(state.Host, s.Host, f.Host), pod: newView(state.Pod, s.Pod, f.Pod)}
		return a.explainPairRefusal(t.Context(), refused)
	}
	if err := taken(); !errors.Is(err, errRaced) {
		t.Errorf("the name is free again: %v, want a race", err)
	}
	nettest.Run(t, s.Pod.ns, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other0")
	if err := taken(); errors.Is(err, errRaced) || !errors.Is(err, ErrExists) {
		t.Errorf("a link of somebody else has the name: %v, want %v", err, ErrExists)
	}
	if err := s.Apply(t.Context(), f); !errors.Is(err, ErrExists) && !errors.Is(err, ErrForeign) {
		t.Errorf("Apply over a link of somebody else: %v", err)
	}
}

// TestSameNameAfterRelease makes pairs whose end in the pod has the name of one that was just released, while the
// reaper runs.
func TestSameNameAfterRelease(t *testing.T) {
	s := pair(t)
	r := NewReaper(s.Host, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	const lives = 300
	failed := 0
	for life := range lives {
		f := port(1 + life%200)
		f.Pod.Links[0].Name = port(1).Pod.Links[0].Name
		if err := s.Apply(t.Context(), f); err != nil {
			failed++
			t.Logf("life %d: %v", life, err)
		}
		if err := s.Release(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		r.Kick()
	}
	if failed > 0 {
		t.Errorf("%d of %d were refused", failed, lives)
	}
}
