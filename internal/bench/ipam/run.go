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

// Config configures Run.
type Config struct {
	// Dir is the directory for ledgers and journals, which are deleted after the run.
	Dir string
	// Count is the number of addresses per sample, N the number of samples.
	Count, N    int
	Concurrency []int
	// Agents claim blocks of one pool at the same time, Blocks each, Rounds times.
	Agents, Blocks, Rounds int
	// Open opens an agent's own connection to the datastore; nil skips the claims.
	Open func(node string) (store.Objects, func() error, error)
	Now  func() time.Time
	Log  *slog.Logger
}

// region is the address range of the pool that a run creates. It is not routed.
const region = "10.128.0.0/10"

// conf returns the network configuration of the pool's pods.
func conf(pool string) json.RawMessage {
	return json.RawMessage(
		`{"cniVersion":"1.0.0","name":"bench","type":"calico","ipam":{"type":"calico-ipam","ipv4_pools":["` + pool + `"]}}`,
	)
}

// manifest returns a pool with manual assignment: addresses are allocated from it only if a pod names it.
func manifest(name, cidr string, size int) (store.Object, error) {
	return store.AddressPoolObject(store.Object{}, model.AddressPool{
		Name: name, AssignmentMode: model.AssignManual, Regions: []model.AddressRegion{
			{CIDR: netip.MustParsePrefix(cidr), BlockSize: size},
		},
	})
}

// Run measures allocations, and claims if cfg.Open is set.
func Run(ctx context.Context, cfg Config) (Report, error) {
	var r Report
	for n := range cfg.N {
		order := rand.New(rand.NewPCG(1, uint64(n))).Perm(len(cfg.Concurrency))
		for _, i := range order {
			if err := sample(ctx, cfg, cfg.Concurrency[i], &r); err != nil {
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

// sample measures a node with an empty ledger.
func sample(ctx context.Context, cfg Config, concurrency int, r *Report) error {
	path, err := os.MkdirTemp(cfg.Dir, "bench-ipam-")
	if err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(path) }()
	storeDir := filepath.Join(path, "store")
	if err := os.Mkdir(storeDir, 0o700); err != nil {
		return fmt.Errorf("directory: %w", err)
	}
	s, err := dir.Open(storeDir)
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
