// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// TestSnapshotFollows: however quickly manifests come and go, the picture ends as the directory does. What goes and
// comes back between two looks at the directory must not be lost.
func TestSnapshotFollows(t *testing.T) {
	s, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := facts.New(s, "me", slog.New(slog.DiscardHandler), time.After)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	<-f.Synced()
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c"}
	for range 12 {
		for range 1 + random.IntN(5) {
			o, err := store.NodeObject(model.Node{Name: names[random.IntN(len(names))]})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Create(t.Context(), o); errors.Is(err, store.ErrExists) {
				err = s.Delete(t.Context(), o.Key, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		}
		want, err := s.Cluster(ctx)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for d := "?"; d != ""; time.Sleep(2 * time.Millisecond) {
			if d = cmp.Diff(want.Nodes, f.Cluster().Nodes); d != "" && time.Since(begin) > time.Minute {
				t.Fatalf("after a minute (-directory +picture):\n%s", d)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
