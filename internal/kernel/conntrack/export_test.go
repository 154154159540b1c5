// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// runner is a test or a benchmark with parts.
type runner[T any] interface {
	testing.TB
	Run(name string, f func(T)) bool
}

// EachFeed runs a test or a benchmark with the events of each feed that the kernel has.
func EachFeed[T runner[T]](t T, f func(t T, listen func(testing.TB, *netns.NS, func([]Event)) *Listener)) {
	for _, by := range []struct {
		name string
		open func(*netns.NS) (feed, error)
	}{{"eBPF", openRing}, {"netlink", openSockets}} {
		t.Run(by.name, func(t T) {
			f(t, func(t testing.TB, ns *netns.NS, f func([]Event)) *Listener {
				t.Helper()
				from, err := by.open(ns)
				if err != nil {
					nettest.Skip(t, err.Error())
				}
				l, err := listen(context.WithoutCancel(t.Context()), ns, from, f)
				if err != nil {
					t.Fatal(err)
				}
				return l
			})
		})
	}
}
