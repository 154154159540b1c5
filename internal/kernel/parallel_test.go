// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestParallelLives adds and removes many attachments of one bridge concurrently over one Conn, as an agent does, with
// a running reaper. They do not interfere, and finally the node is as it was before.
func TestParallelLives(t *testing.T) {
	host := nettest.NS(t, "host")
	c := dial(t, host)
	nettest.Run(t, host, "ip", "link", "set", "lo", "up")
	node := Spaces{Host: c, Pod: c}
	before := scrub(snapshot(t, node))
	r := NewReaper(c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	var g errgroup.Group
	const pods, lives = 24, 4
	for n := range pods {
		pod := nettest.NS(t, fmt.Sprintf("pod%d", n))
		s := Spaces{Host: c, Pod: dial(t, pod), PodNS: pod}
		plan := []func(int) state.Fragment{ptp, port}[n%2]
		g.Go(func() error {
			for life := range lives {
				f := plan(n + 1)
				if err := s.Apply(t.Context(), f); err != nil {
					return fmt.Errorf("life %d: %w", life, err)
				}
				if d, err := s.Diff(t.Context(), f); err != nil || len(d) > 0 {
					return fmt.Errorf("life %d: %v %w", life, d, err)
				}
				if err := s.Release(t.Context(), f); err != nil {
					return fmt.Errorf("life %d: %w", life, err)
				}
				r.Kick()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := node.RemoveShared(t.Context(), port(1)); err != nil {
		t.Fatal(err)
	}
	if after := scrub(snapshot(t, node)); after != before {
		t.Errorf("the node is not as it was:\n%s\nbefore:\n%s", after, before)
	}
}

// TestReadAllWhileThingsComeAndGo: with hundreds of links, something changes during every dump. Reading succeeds
// nevertheless, and returns all objects that do not change.
func TestReadAllWhileThingsComeAndGo(t *testing.T) {
	host := nettest.NS(t, "host")
	c := dial(t, host)
	// Pairs: deleting a namespace with a thousand bridges takes half a minute.
	couple := func(name string, n int) (left, right state.Link) {
		a, b := fmt.Sprintf("%s%da", name, n), fmt.Sprintf("%s%db", name, n)
		return state.Link{Name: a, Kind: state.Veth, Peer: &state.Peer{Space: state.Host, Name: b}},
			state.Link{Name: b, Kind: state.Veth, Peer: &state.Peer{Space: state.Host, Name: a}}
	}
	var many state.Fragment
	for i := range 150 {
		left, right := couple("old", i)
		many.Host.Links = append(many.Host.Links, left, right)
	}
	s := Spaces{Host: c}
	if err := s.Apply(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	other := Spaces{Host: dial(t, host)}
	done := make(chan error, 1)
	go func() {
		for i := range 400 {
			left, right := couple("new", i)
			if err := other.Apply(context.Background(), state.Fragment{
				Host: state.Space{Links: []state.Link{left, right}},
			}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for reads := 0; ; reads++ {
		all, err := c.ReadAll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(all.Links); n < 301 {
			t.Errorf("%d links, want the 300 that stay and lo at least", n)
		}
		select {
		case err := <-done:
			t.Logf("read %d times meanwhile", reads)
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}
