// SPDX-License-Identifier: Apache-2.0

// Package tunnelip keeps the node's own addresses at the ends of its tunnels where pods are numbered from pools: what
// the node itself sends to pods has them as its source, so that answers come back the same way. They are allocated as
// those of pods are.
package tunnelip

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/membership"
)

// retryPeriod is when an address that could not be allocated is asked for again.
const retryPeriod = 2 * time.Second

// Config is that of Addresses.
type Config struct {
	StateDir string
	Boot     string
	Network  config.Network
	Engine   *blocks.Engine
	Facts    *facts.Facts
	Node     membership.Node
	// Changed is called when the addresses have changed.
	Changed func()
	Log     *slog.Logger
	After   func(time.Duration) <-chan time.Time
}

// Addresses are the node's, at most one of each family.
type Addresses struct {
	cfg  Config
	file string

	mu    sync.Mutex
	addrs map[int]netip.Addr // by family
}

// saved is what is remembered of them.
type saved struct {
	Boot  string             `json:"boot"`
	Addrs map[int]netip.Addr `json:"addresses"`
}

// Open reads what was remembered in this boot, and has the engine keep it.
func Open(cfg Config) *Addresses {
	e := &Addresses{cfg: cfg, file: filepath.Join(cfg.StateDir, "ends.json"), addrs: map[int]netip.Addr{}}
	b, err := os.ReadFile(e.file)
	var f saved
	if err != nil || json.Unmarshal(b, &f) != nil || f.Boot != cfg.Boot {
		return e
	}
	for family, addr := range f.Addrs {
		if addr.Is4() && family == 4 || addr.Is6() && family == 6 {
			e.addrs[family] = addr
			cfg.Engine.Restore(context.Background(), []ipam.Ask{e.ask(family, nil, addr)})
		}
	}
	return e
}

// ask is how the engine is asked for the address of a family, from some pools alone where these are named.
func (e *Addresses) ask(family int, pools []string, held ...netip.Addr) ipam.Ask {
	section := map[string]any{
		"type": blocks.TypeCalico, "assign_ipv4": strconv.FormatBool(family == 4),
		"assign_ipv6": strconv.FormatBool(family == 6),
	}
	if len(pools) > 0 {
		section[fmt.Sprintf("ipv%d_pools", family)] = pools
	}
	conf, err := json.Marshal(map[string]any{"type": "calico", "ipam": section})
	if err != nil {
		conf = nil // texts alone: it cannot be; the engine would refuse it
	}
	return ipam.Ask{
		Conf: conf, Network: e.cfg.Network.Name, ContainerID: blocks.OwnContainer, IfName: "tunnel" + strconv.Itoa(family),
		Held: held, Wishes: model.AddressWishes{Use: model.UseTunnel},
	}
}

// All are the addresses; the nil Addresses has none.
func (e *Addresses) All() []netip.Addr {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []netip.Addr
	for _, family := range []int{4, 6} {
		if a, ok := e.addrs[family]; ok {
			out = append(out, a)
		}
	}
	return out
}

// Run allocates the addresses that are needed and releases those that are not, until ctx ends.
func (e *Addresses) Run(ctx context.Context) error {
	changed, cancel := e.cfg.Facts.Subscribe()
	defer cancel()
	trouble := ""
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
		again = nil
		err := e.follow(ctx, e.cfg.Facts.Cluster())
		if err == nil {
			trouble = ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			e.cfg.Log.Warn("tunnels have no address of this node's yet", "err", err)
		}
		again = e.cfg.After(retryPeriod)
	}
}

// follow compares what there is with what is needed.
func (e *Addresses) follow(ctx context.Context, c *model.Cluster) error {
	need := model.PoolFamilies(c.Pools, e.tunneled)
	for _, family := range []int{4, 6} {
		e.mu.Lock()
		have, ok := e.addrs[family]
		e.mu.Unlock()
		lost := ok && onOtherNode(c, have)
		if ok && (lost || !slices.Contains(need, family)) {
			if err := e.release(ctx, family, have); err != nil {
				return err
			}
			ok = false
		}
		if ok || !slices.Contains(need, family) {
			continue
		}
		if err := e.allocate(ctx, family, e.pools(c, family)); err != nil {
			return err
		}
	}
	return nil
}

// tunneled reports whether packets to a pool's pods may travel in a tunnel whose ends have addresses of pods.
func (e *Addresses) tunneled(p model.AddressPool) bool {
	if !p.OfCluster() {
		return false
	}
	kind := string(p.Encapsulation.Kind)
	if kind == "" {
		kind = e.cfg.Network.Encapsulation
	}
	return kind != "" && kind != "none" && kind != "host-gw"
}

// pools are the pools that an end's address had best be of: those of the tunnel itself. So what comes back to it comes
// through the tunnel, too.
func (e *Addresses) pools(c *model.Cluster, family int) []string {
	labels, _ := e.cfg.Node.Labels()
	var out []string
	for _, p := range model.Allocatable(c.Pools) {
		selector, err := model.ParseExpression(p.NodeSelector)
		if err != nil || !selector.Matches(labels) || !e.tunneled(p) || !p.Allows(model.UseTunnel) ||
			p.AssignmentMode != model.AssignAutomatic {
			continue
		}
		if slices.Contains(model.PoolFamilies([]model.AddressPool{p}, func(model.AddressPool) bool { return true }), family) {
			out = append(out, p.Name)
		}
	}
	return out
}

// onOtherNode reports whether an address is known to be another node's: its block is, or it was given away to that one.
func onOtherNode(c *model.Cluster, a netip.Addr) bool {
	for _, b := range c.Blocks {
		if b.CIDR.Contains(a) {
			return b.Holder(a) != c.Self
		}
	}
	return false
}

func (e *Addresses) allocate(ctx context.Context, family int, pools []string) error {
	allocator, err := e.allocator()
	if err != nil {
		return err
	}
	got, err := allocator.Add(ctx, e.ask(family, pools))
	if err != nil {
		return err
	}
	if len(got.IPs) == 0 {
		return fmt.Errorf("no IPv%d address was given", family)
	}
	return e.set(family, got.IPs[0].Address.Addr())
}

func (e *Addresses) release(ctx context.Context, family int, addr netip.Addr) error {
	allocator, err := e.allocator()
	if err == nil {
		err = e.set(family, netip.Addr{})
	}
	if err != nil {
		return err
	}
	return allocator.Del(ctx, e.ask(family, nil, addr))
}

// set remembers an address, or that there is none, before it is used.
func (e *Addresses) set(family int, addr netip.Addr) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := saved{Boot: e.cfg.Boot, Addrs: map[int]netip.Addr{}}
	for f, a := range e.addrs {
		next.Addrs[f] = a
	}
	delete(next.Addrs, family)
	if addr.IsValid() {
		next.Addrs[family] = addr
	}
	b, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Write(e.file, append(b, '\n'), 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return fmt.Errorf("tunnel addresses: %w", err)
	}
	e.addrs = next.Addrs
	e.cfg.Changed()
	return nil
}

func (e *Addresses) allocator() (ipam.Allocator, error) {
	for _, a := range e.cfg.Engine.Allocators() {
		if a.Type() == blocks.TypeCalico {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", blocks.TypeCalico)
}
