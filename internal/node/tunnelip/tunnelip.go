// SPDX-License-Identifier: Apache-2.0

// Package tunnelip allocates the node's own tunnel addresses where pods get addresses from pools: packets from the
// node to pods use them as their source, so that replies return through the tunnel. They are allocated like those of
// pods.
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
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/membership"
)

// retryPeriod is the pause before an address that could not be allocated is requested again.
const retryPeriod = 2 * time.Second

// Config configures Addresses.
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

// Addresses are the node's tunnel addresses, at most one of each family.
type Addresses struct {
	cfg  Config
	file string

	mu    sync.Mutex
	addrs map[int]netip.Addr // by family
}

// FileName is the name of the file in the state directory, and FileVersion its format.
const (
	FileName    = "ends.json"
	FileVersion = 1
)

// saved is the content of the file.
type saved struct {
	Boot  string             `json:"boot"`
	Addrs map[int]netip.Addr `json:"addresses"`
}

// Open reads the file of this boot and restores the addresses in the engine.
func Open(cfg Config) *Addresses {
	e := &Addresses{cfg: cfg, file: filepath.Join(cfg.StateDir, FileName), addrs: map[int]netip.Addr{}}
	b, err := os.ReadFile(e.file)
	var f saved
	if err != nil || json.Unmarshal(b, &f) != nil || f.Boot != cfg.Boot {
		return e
	}
	for family, addr := range f.Addrs {
		if addr.Is4() && family == 4 || addr.Is6() && family == 6 {
			e.addrs[family] = addr
			cfg.Engine.Restore(context.Background(), []ipam.Request{e.request(family, nil, addr)})
		}
	}
	return e
}

// request returns the engine's request for an address of a family, from the named pools only if there are any.
func (e *Addresses) request(family int, pools []string, held ...netip.Addr) ipam.Request {
	section := map[string]any{
		"type": poolconf.TypeCalico, "assign_ipv4": strconv.FormatBool(family == 4),
		"assign_ipv6": strconv.FormatBool(family == 6),
	}
	if len(pools) > 0 {
		section[fmt.Sprintf("ipv%d_pools", family)] = pools
	}
	conf, err := json.Marshal(map[string]any{"type": "calico", "ipam": section})
	if err != nil {
		conf = nil // cannot happen with strings; the engine would refuse it
	}
	return ipam.Request{
		Conf: conf, Network: e.cfg.Network.Name, ContainerID: blockreport.OwnContainer, IfName: "tunnel" + strconv.Itoa(family),
		Held: held, PodRequest: model.AddressRequest{Use: model.UseTunnel},
	}
}

// All returns the addresses; the nil Addresses has none.
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

// Run allocates the addresses that are needed and releases the others, until ctx ends.
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
			e.cfg.Log.Warn("tunnel address could not be allocated or released", "err", err)
		}
		again = e.cfg.After(retryPeriod)
	}
}

// follow compares the addresses with what is needed.
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

// tunneled reports whether packets to a pool's pods may use a tunnel whose ends have pod addresses.
func (e *Addresses) tunneled(p model.AddressPool) bool {
	if !p.IsClusterPool() {
		return false
	}
	kind := string(p.Encapsulation.Kind)
	if kind == "" {
		kind = e.cfg.Network.Encapsulation
	}
	return kind != "" && kind != "none" && kind != "host-gw"
}

// pools returns the preferred pools of a tunnel address: those of the tunnel's own pods. So replies also use the
// tunnel.
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

// onOtherNode reports whether an address is known to be another node's: its block is, or it was lent to that node.
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
	got, err := allocator.Add(ctx, e.request(family, pools))
	if err != nil {
		return err
	}
	if len(got.IPs) == 0 {
		return fmt.Errorf("no IPv%d address was allocated", family)
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
	return allocator.Del(ctx, e.request(family, nil, addr))
}

// set saves an address, or its absence, before it is used.
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
		if a.Type() == poolconf.TypeCalico {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", poolconf.TypeCalico)
}
