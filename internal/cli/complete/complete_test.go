// SPDX-License-Identifier: Apache-2.0

package complete

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	some := Words("web", "db", "worker", "db")
	for _, c := range []struct {
		list List
		have []string
		word string
		want []string
	}{
		{some, nil, "", []string{"db", "web", "worker"}},
		{some, nil, "w", []string{"web", "worker"}},
		{some, []string{"web"}, "w", []string{"worker"}},
		{some, nil, "x", nil},
		{func(context.Context) ([]string, error) { return []string{"web"}, errors.New("incomplete") }, nil, "", nil},
	} {
		if got := names(t.Context(), c.list, c.have, c.word, time.Hour); !slices.Equal(got, c.want) {
			t.Errorf("%v %q: %q, want %q", c.have, c.word, got, c.want)
		}
	}
}

// TestLimit: a list that waits for its context, and one that ignores it, end at the limit.
func TestLimit(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	for _, list := range []List{
		func(ctx context.Context) ([]string, error) { <-ctx.Done(); return []string{"late"}, nil },
		func(context.Context) ([]string, error) { <-end; return nil, nil },
	} {
		if got := names(t.Context(), list, nil, "", time.Millisecond); got != nil {
			t.Errorf("%q", got)
		}
	}
}
