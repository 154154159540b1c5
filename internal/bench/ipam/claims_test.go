// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestClaims: agents claim blocks of one pool through a real API server, and the pool and its blocks are deleted.
func TestClaims(t *testing.T) {
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	for _, name := range []string{"addresspools", "addressblocks"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "crds", "weft.dev_"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s.DefineKind(text)
	}
	open := func(node string) (store.Objects, func() error, error) {
		k, err := kube.Open(kube.Config{
			Access: kube.Access{Kubeconfig: s.Kubeconfig(s.URL, ""), Getenv: os.Getenv}, Node: node, Agent: "weft-test",
			Log: slog.New(slog.DiscardHandler), Now: time.Now, After: time.After,
		})
		if err != nil {
			return nil, nil, err
		}
		return k.Objects(), func() error { return nil }, nil
	}
	const agents = 5
	r, err := Run(context.Background(), Config{
		Dir: t.TempDir(), Agents: agents, Blocks: 4, Rounds: 1, Open: open, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.Text(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	objects, _, err := open("after")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []store.Kind{store.AddressPools(), store.AddressBlocks()} {
		if left, err := objects.List(context.Background(), kind); err != nil || len(left) > 0 {
			t.Errorf("%s: %d objects are left, error %v", kind.Resource, len(left), err)
		}
	}
	for _, row := range r.Rows {
		if row.Metric == "claims in a round" && row.P50 < float64(4*agents) {
			t.Errorf("%v claims", row.P50)
		}
	}
}
