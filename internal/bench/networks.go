// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/weft-net/weft/internal/model"
)

// uplink is the master interface of the additional networks.
const uplink = "up0"

// NetworksConfig configures Networks.
type NetworksConfig struct {
	// Chain is the pods' primary network.
	Chain Chain
	Impls []Impl
	// Networks are the numbers of additional macvlan networks per pod; 0 measures the primary network only.
	Networks    []int
	N           int   // samples per cell
	Concurrency []int // concurrent pods
	Pods        int   // present while measuring
	Seed        uint64
	Log         *slog.Logger
}

// maxNetworks is the maximum number of additional networks per pod.
const maxNetworks = 60

// Networks measures pods with multiple networks. weft's agent handles them as delegates of one call with the plugin
// type multus; a peer's plugins are executed network by network, as thin Multus does, without the program Multus
// itself. The numbers of networks are interleaved, so that they can be compared.
func Networks(ctx context.Context, cfg NetworksConfig) (Report, error) {
	if cfg.N < 1 || len(cfg.Impls) == 0 || len(cfg.Networks) == 0 {
		return Report{}, model.Errorf(model.CodeInvalidConf,
			"give -n 1 or more, one implementation and one number of networks",
			"bench: -n %d, %d implementations, %d numbers of networks",
			cfg.N, len(cfg.Impls), len(cfg.Networks))
	}
	for _, n := range cfg.Networks {
		if n < 0 || n > maxNetworks {
			return Report{}, model.OutOfRange("--networks", n, fmt.Sprintf("0 to %d", maxNetworks), "1,3,8")
		}
	}
	dir, volatile, remove, err := runDirs()
	if err != nil {
		return Report{}, err
	}
	defer remove()
	b := &bench{
		cfg: Config{Chain: cfg.Chain, Impls: cfg.Impls, N: cfg.N, Seed: cfg.Seed, Log: cfg.Log}, dir: dir, volatile: volatile,
		samples: newSamples(),
	}
	var worlds []*world
	defer func() { closeAll(worlds) }()
	for _, n := range cfg.Networks {
		b.cfg.Chain = cfg.Chain.withNetworks(n)
		more, err := b.worlds(ctx, fmt.Sprintf("networks-%d", n), cfg.Pods, cfg.Impls)
		worlds = append(worlds, more...)
		if err != nil {
			return Report{}, err
		}
	}
	for _, concurrency := range cfg.Concurrency {
		cell := Cell{Pods: cfg.Pods, Concurrency: concurrency}
		cfg.Log.Info("measuring a cell", "chain", cfg.Chain.Name, "networks", cfg.Networks, "concurrency", concurrency,
			"n", cfg.N)
		if err := b.cell(ctx, worlds, cell); err != nil {
			return Report{}, err
		}
		if err := b.cycles(ctx, worlds, cell); err != nil {
			return Report{}, err
		}
	}
	r := b.report()
	r.Ratios = append(r.Ratios, selfRatios(r.Rows, cfg)...)
	r.Notes = append(
		r.Notes,
		"a peer is measured as its plugins only, executed network by network; Multus itself (thin plugin) adds 12 to 14 ms of CPU to each ADD and DEL",
	)
	return r, nil
}

// runDirs creates the directories of a run: one on disk, one on tmpfs.
func runDirs() (dir, volatile string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return "", "", nil, fmt.Errorf("bench: %w", err)
	}
	if volatile, err = os.MkdirTemp(tmpfsDir(), "weft-bench-"); err != nil {
		_ = os.RemoveAll(dir)
		return "", "", nil, fmt.Errorf("bench: %w", err)
	}
	return dir, volatile, func() { _, _ = os.RemoveAll(dir), os.RemoveAll(volatile) }, nil
}

// selfRatios returns the ratios of each implementation's ADD and DEL to its own at the smallest number of networks.
func selfRatios(rows []Row, cfg NetworksConfig) []Ratio {
	var out []Ratio
	base := cfg.Chain.withNetworks(slices.Min(cfg.Networks)).reportName()
	for _, r := range rows {
		if r.Chain == base || r.Metric != "add" && r.Metric != "del" {
			continue
		}
		for _, b := range rows {
			if b.Impl == r.Impl && b.Metric == r.Metric && b.Concurrency == r.Concurrency && b.Chain == base && b.P50 > 0 {
				out = append(out, Ratio{
					Metric: r.Metric, Chain: r.Chain, Concurrency: r.Concurrency, Pods: r.Pods,
					Peer: r.Impl + " " + base, Weft: r.Impl, Ratio: r.P50 / b.P50,
				})
			}
		}
	}
	return out
}

// withNetworks returns the chain with n additional macvlan networks, all of them delegates of the type multus.
func (c Chain) withNetworks(n int) Chain {
	c.multus, c.extra = true, n
	return c
}

// reportName returns the chain's name in the report.
func (c Chain) reportName() string {
	if c.extra == 0 {
		return c.Name
	}
	return c.Name + "+" + strconv.Itoa(c.extra)
}

// lists returns the configuration lists of all networks for a runtime that executes the plugins directly.
func (c Chain) lists(dir string) ([][]byte, error) {
	first, err := c.standaloneList(dir)
	if err != nil {
		return nil, err
	}
	all := [][]byte{first}
	for i := range c.extra {
		macvlan := Chain{Name: "macvlan", list: map[string]any{
			"cniVersion": c.list["cniVersion"], "name": fmt.Sprint("wire", i+1),
			"plugins": []any{map[string]any{
				"type": "macvlan", "master": uplink, "mode": "bridge",
				"ipam": map[string]any{
					"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": fmt.Sprintf("10.%d.0.0/16", 100+i)}}},
				},
			}},
		}}
		b, err := macvlan.standaloneList(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// delegates returns the lists in the form of the agent's configuration.
func (c Chain) delegates(dir string) ([]any, error) {
	lists, err := c.lists(dir)
	if err != nil {
		return nil, err
	}
	all := make([]any, 0, len(lists))
	for _, b := range lists {
		all = append(all, json.RawMessage(b))
	}
	return all, nil
}

// addUplink creates the master interface of the additional networks.
func (w *world) addUplink() error {
	err := w.node.Do(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: uplink}, PeerName: uplink + "p"}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		for _, name := range []string{uplink, uplink + "p"} {
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("uplink of %s: %w", w.impl.Name, err)
	}
	return nil
}
