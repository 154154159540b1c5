// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestNode(t *testing.T) {
	r, err := Run(context.Background(), Config{
		Dir: t.TempDir(), Count: 700, N: 1, Concurrency: []int{1, 16}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	if len(r.Rows) != 6 {
		t.Errorf("%d rows", len(r.Rows))
	}
}
