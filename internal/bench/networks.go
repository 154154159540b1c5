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

// uplink is what the further networks are made upon in the nodes of NetworksConfig.
const uplink = "up0"

// NetworksConfig says what Networks measures.
type NetworksConfig struct {
	// Chain is the pods' first network.
	Chain Chain
	Impls []Impl
	// Networks are how many macvlan networks a pod has beside its first one; 0 measures the first one alone.
	Networks    []int
	N           int   // samples a cell
	Concurrency []int // pods at a time
	Pods        int   // present while measuring
	Seed        uint64
	Log         *slog.Logger
}

// most is how many further networks a pod of the bench may have.
const most = 60

// Networks measures pods with several networks. weft's agent has them as delegates of one call of its type multus; of a
// peer its plugins are executed network by network, as thin Multus does, without the program Multus itself. All numbers
// of networks take turns with each other, so that they can be compared.
func Networks(ctx context.Context, cfg NetworksConfig) (Report, error) {
	if cfg.N < 1 || len(cfg.Impls) == 0 || len(cfg.Networks) == 0 {
		return Report{}, model.Faultf(model.CodeInvalidConf,
			"give -n 1 or more, one implementation and one number of networks",
			"bench: -n %d, %d implementations, %d numbers of networks",
			cfg.N, len(cfg.Impls), len(cfg.Networks))
	}
	for _, n := range cfg.Networks {
		if n < 0 || n > most {
			return Report{}, model.Faultf(model.CodeInvalidConf, fmt.Sprintf("give 0 to %d", most), "--networks %d", n)
		}
	}
	dir, volatile, remove, err := places()
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
		b.cfg.Chain = cfg.Chain.and(n)
		more, err := b.worlds(ctx, fmt.Sprintf("networks-%d", n), cfg.Pods)
		worlds = append(worlds, more...)
		if err != nil {
			return Report{}, err
		}
	}
	for _, at := range cfg.Concurrency {
		cell := Cell{Pods: cfg.Pods, Concurrency: at}
		cfg.Log.Info("measuring", "chain", cfg.Chain.Name, "networks", cfg.Networks, "at a time", at, "n", cfg.N)
		if err := b.cell(ctx, worlds, cell); err != nil {
			return Report{}, err
		}
		if err := b.cycles(ctx, worlds, cell); err != nil {
			return Report{}, err
		}
	}
	r := b.report()
	r.Ratios = append(r.Ratios, amongThemselves(r.Rows, cfg)...)
	r.Notes = append(
		r.Notes,
		"a peer's figures are its plugins alone, executed network by network; Multus as a plugin of its own (thin) adds 12 to 14 ms of CPU to each ADD and DEL",
	)
	return r, nil
}

// places makes the directories of a run: on the disk, and in memory.
func places() (dir, volatile string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "weft-bench-"); err != nil {
		return "", "", nil, fmt.Errorf("bench: %w", err)
	}
	if volatile, err = os.MkdirTemp(memoryDir(), "weft-bench-"); err != nil {
		_ = os.RemoveAll(dir)
		return "", "", nil, fmt.Errorf("bench: %w", err)
	}
	return dir, volatile, func() { _, _ = os.RemoveAll(dir), os.RemoveAll(volatile) }, nil
}

// amongThemselves compares each implementation's ADD and DEL with itself at the smallest number of networks.
func amongThemselves(rows []Row, cfg NetworksConfig) []Ratio {
	var out []Ratio
	least := cfg.Chain.and(slices.Min(cfg.Networks)).called()
	for _, r := range rows {
		if r.Chain == least || r.Metric != "add" && r.Metric != "del" {
			continue
		}
		for _, base := range rows {
			if base.Impl == r.Impl && base.Metric == r.Metric && base.Concurrency == r.Concurrency && base.Chain == least &&
				base.P50 > 0 {
				out = append(out, Ratio{
					Metric: r.Metric, Chain: r.Chain, Concurrency: r.Concurrency, Pods: r.Pods,
					Peer: r.Impl + " " + least, Weft: r.Impl, Ratio: r.P50 / base.P50,
				})
			}
		}
	}
	return out
}

// and is the chain with n further macvlan networks, all of them Multus' delegates.
func (c Chain) and(n int) Chain {
	c.several, c.further = true, n
	return c
}

// called is the chain's name in the report.
func (c Chain) called() string {
	if c.further == 0 {
		return c.Name
	}
	return c.Name + "+" + strconv.Itoa(c.further)
}

// lists are the networks for a runtime that executes the plugins itself.
func (c Chain) lists(dir string) ([][]byte, error) {
	first, err := c.direct(dir)
	if err != nil {
		return nil, err
	}
	all := [][]byte{first}
	for i := range c.further {
		wire := Chain{Name: "macvlan", list: map[string]any{
			"cniVersion": c.list["cniVersion"], "name": fmt.Sprint("wire", i+1),
			"plugins": []any{map[string]any{
				"type": "macvlan", "master": uplink, "mode": "bridge",
				"ipam": map[string]any{
					"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": fmt.Sprintf("10.%d.0.0/16", 100+i)}}},
				},
			}},
		}}
		b, err := wire.direct(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// delegates are the lists as they stand in the agent's configuration.
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

// plug gives the node the link that further networks are made upon.
func (w *world) plug() error {
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
