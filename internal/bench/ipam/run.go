// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// Config says what is measured.
type Config struct {
	// Dir is where ledgers and journals are made; what is made there goes again.
	Dir string
	// Count is how many addresses are given in one sample, N how many samples there are.
	Count, N    int
	Concurrency []int
	// Agents claim blocks of one pool at the same time, Blocks each, Rounds times.
	Agents, Blocks, Rounds int
	// Open gives an agent's own way to the store; nil: claims are not measured.
	Open func(node string) (store.Objects, func() error, error)
	Now  func() time.Time
	Log  *slog.Logger
}

// pool is the pool that is made for a run. It is no cluster's network: nobody routes it.
const region = "10.128.0.0/10"

// conf is what a pod of the pool is configured with.
func conf(pool string) json.RawMessage {
	return json.RawMessage(
		`{"cniVersion":"1.0.0","name":"bench","type":"calico","ipam":{"type":"calico-ipam","ipv4_pools":["` + pool + `"]}}`,
	)
}

// manifest is a pool of the cluster's network that only who names it takes from.
func manifest(name, cidr string, size int) (store.Object, error) {
	return store.AddressPoolObject(store.Object{}, model.AddressPool{
		Name: name, AssignmentMode: model.AssignManual, Regions: []model.AddressRegion{
			{CIDR: netip.MustParsePrefix(cidr), BlockSize: size},
		},
	})
}

// Run measures.
func Run(ctx context.Context, cfg Config) (Report, error) {
	var r Report
	for n := range cfg.N {
		order := rand.New(rand.NewPCG(1, uint64(n))).Perm(len(cfg.Concurrency))
		for _, i := range order {
			if err := one(ctx, cfg, cfg.Concurrency[i], &r); err != nil {
				return r, err
			}
		}
	}
	if cfg.Open != nil {
		for round := range cfg.Rounds {
			if err := claims(ctx, cfg, round, &r); err != nil {
				return r, err
			}
		}
	}
	r.finish(cfg)
	return r, nil
}

// one is a sample: a node with an empty ledger.
func one(ctx context.Context, cfg Config, concurrency int, r *Report) error {
	path, err := os.MkdirTemp(cfg.Dir, "bench-ipam-")
	if err != nil {
		return fmt.Errorf("directory of the measurement: %w", err)
	}
	defer func() { _ = os.RemoveAll(path) }()
	shelf := filepath.Join(path, "store")
	if err := os.Mkdir(shelf, 0o700); err != nil {
		return fmt.Errorf("directory of the measurement: %w", err)
	}
	s, err := dir.Open(shelf)
	if err != nil {
		return err
	}
	pool, err := manifest("bench", region, 24)
	if err != nil {
		return err
	}
	if _, err := s.Objects().Create(ctx, store.AddressPools(), pool); err != nil {
		return err
	}
	n, err := newNode(ctx, cfg, path, s.Objects())
	if err != nil {
		return err
	}
	defer n.close()
	return n.measure(ctx, concurrency, r)
}

func name(prefix string, at time.Time) string {
	return strings.ToLower(fmt.Sprintf("%s-%x", prefix, at.UnixNano()))
}
