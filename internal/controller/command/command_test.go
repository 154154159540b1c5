// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestServe: the program creates the configuration's pools on a real API server, and reports them.
func TestServe(t *testing.T) {
	nettest.EndToEnd(t)
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	files, err := filepath.Glob("../../../deploy/crds/weft.dev_*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	s.Do(http.MethodPost, "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	one := options{
		c: config.Config{
			Node: "n1", Kubernetes: config.Kubernetes{Kubeconfig: s.Kubeconfig(s.URL, "")},
			Metrics: config.Metrics{Address: "127.0.0.1:9120"},
			Network: config.Network{Pools: []config.Pool{{CIDR: netip.MustParsePrefix("10.77.0.0/24"), BlockSize: 28}}},
		},
		identity: "one", version: "test", getenv: os.Getenv, level: new(slog.LevelVar), log: slog.New(slog.DiscardHandler),
		now: time.Now, after: time.After, ready: func() {},
	}
	go func() { ended <- serve(ctx, one) }()
	metrics := func() string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9120/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		b, _ := io.ReadAll(answer.Body)
		return string(b)
	}
	text := ""
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text = metrics()
		if strings.Contains(text, "\nweft_controller_leader 1") &&
			strings.Contains(text, `weft_pool_addresses{pool="pool-10-77-0-0-24"} 256`) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("metrics: %s", text)
		}
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	err = serve(t.Context(), options{log: one.log})
	if err == nil || !strings.Contains(err.Error(), "the controller needs Kubernetes") {
		t.Errorf("without Kubernetes: %v", err)
	}
}
