// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"log/slog"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// BenchmarkApplyPtp and its siblings measure the cost of an ADD and a DEL in this package: opening and closing the
// pod's sockets is included, making namespaces is not.
func BenchmarkApplyPtp(b *testing.B)    { benchmark(b, ptp, true) }
func BenchmarkApplyBridge(b *testing.B) { benchmark(b, port, true) }

func BenchmarkReleasePtp(b *testing.B)    { benchmark(b, ptp, false) }
func BenchmarkReleaseBridge(b *testing.B) { benchmark(b, port, false) }

func benchmark(b *testing.B, plan func(int) state.Fragment, adds bool) {
	host := dial(b, nettest.NS(b, "host"))
	ctx, cancel := context.WithCancel(b.Context())
	reaper := NewReaper(host, slog.New(slog.DiscardHandler))
	done := make(chan error)
	go func() { done <- reaper.Run(ctx) }()
	defer func() { cancel(); <-done }()
	timed := func(on bool) {
		if on {
			b.StartTimer()
		} else {
			b.StopTimer()
		}
	}
	for i := range b.N {
		b.StopTimer()
		pod, err := netns.Anonymous()
		if err != nil {
			b.Fatal(err)
		}
		f := plan(i % 60000)
		timed(adds)
		p, err := Dial(pod)
		if err != nil {
			b.Fatal(err)
		}
		s := Spaces{Host: host, Pod: p, PodNS: pod}
		if err := s.Apply(b.Context(), f); err != nil {
			b.Fatal(err)
		}
		timed(!adds)
		if err := s.Release(b.Context(), f); err != nil {
			b.Fatal(err)
		}
		_ = p.Close()
		b.StopTimer()
		if err := reaper.Wait(ctx); err != nil {
			b.Fatal(err)
		}
		_ = pod.Close()
		b.StartTimer()
	}
}
