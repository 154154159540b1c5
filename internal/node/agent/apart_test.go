// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/nettest"
)

// TestOldServer: an agent in a pod exits with an error that names the version if the API server is too old, even if it
// did not respond at first; an agent with its own kubeconfig, whose permissions an operator chose, continues.
func TestOldServer(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"major":"1","minor":"31","gitVersion":"v1.31.2"}`)
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, s.URL,
	)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Log: slog.New(slog.DiscardHandler), Now: time.Now,
		After: func(time.Duration) <-chan time.Time { return time.After(10 * time.Millisecond) },
	}
	k, err := kube.Open(kube.Config{
		Access: kube.Access{Kubeconfig: file, Getenv: os.Getenv}, Node: "n1", Log: cfg.Log, Now: cfg.Now, After: cfg.After,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitServer(ctx, k, false, cfg); err != nil || asked.Load() != 0 {
		t.Errorf("with a kubeconfig: %v, asked %d times", err, asked.Load())
	}
	if err := awaitServer(ctx, k, true, cfg); err == nil ||
		!strings.Contains(err.Error(), `"v1.31.2" (1.31): before 1.32`) || asked.Load() < 2 {
		t.Errorf("a server of 1.31: %v, asked %d times", err, asked.Load())
	}
}
