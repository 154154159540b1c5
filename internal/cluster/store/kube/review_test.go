// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// reviews: the server says who may see flows, and a flood of tokens delays no lookup of an ADD.
func reviews(t *testing.T, w world) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	v := start(t, w.config(t, "n1"))
	if _, err := v.ReviewToken(ctx, "forged"); !errors.Is(err, kube.ErrNoUser) {
		t.Errorf("a forged token: %v", err)
	}
	for name, want := range map[string]bool{"system:masters": true, "sellers": false} {
		may, err := v.MayGetFlows(ctx, kube.User{Name: "ann", Groups: []string{name}}, "default")
		if err != nil || may != want {
			t.Errorf("group %s: %v %v, want %v", name, may, err, want)
		}
	}
	const flood, begun = 150, 10
	var done atomic.Int64
	some := make(chan struct{}, flood)
	var parts sync.WaitGroup
	for i := range flood {
		parts.Go(func() {
			_, _ = v.ReviewToken(ctx, fmt.Sprint("forged", i))
			done.Add(1)
			some <- struct{}{}
		})
	}
	for range begun {
		<-some
	}
	if _, err := v.Network(ctx, "default", "reviews-none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("lookup: %v", err)
	}
	if n := done.Load(); n == flood {
		t.Errorf("the lookup waited for %d reviews", n)
	}
	cancel()
	parts.Wait()
}
