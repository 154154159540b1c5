// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
)

// endsAgain is when an address that could not be had is asked for again.
const endsAgain = 2 * time.Second

// ends are the node's own addresses at the ends of its tunnels, where pods are numbered from pools: what the node itself
// sends to pods comes from there, so that answers come back the same way. They are given as those of pods are.
type ends struct {
	agent *agent
	boot  string
	file  string

	mu    sync.Mutex
	addrs map[int]netip.Addr // by family
}

// endsFile is what is remembered of ends.
type endsFile struct {
	Boot  string             `json:"boot"`
	Addrs map[int]netip.Addr `json:"addresses"`
}

// openEnds reads what was remembered in this boot, and has the engine keep it.
func (a *agent) openEnds(boot string) *ends {
	e := &ends{agent: a, boot: boot, file: filepath.Join(a.cfg.StateDir, "ends.json"), addrs: map[int]netip.Addr{}}
	b, err := os.ReadFile(e.file)
	var f endsFile
	if err != nil || json.Unmarshal(b, &f) != nil || f.Boot != boot {
		return e
	}
	for family, addr := range f.Addrs {
		if addr.Is4() && family == 4 || addr.Is6() && family == 6 {
			e.addrs[family] = addr
			a.blocks.Restore(context.Background(), []ipam.Ask{e.ask(family, nil, addr)})
		}
	}
	return e
}

// ask is how the engine is asked for the address of a family, from some pools alone where these are named.
func (e *ends) ask(family int, pools []string, held ...netip.Addr) ipam.Ask {
	section := map[string]any{"type": blocks.TypeCalico, "assign_ipv4": strconv.FormatBool(family == 4), "assign_ipv6": strconv.FormatBool(family == 6)}
	if len(pools) > 0 {
		section[fmt.Sprintf("ipv%d_pools", family)] = pools
	}
	conf, err := json.Marshal(map[string]any{"type": "calico", "ipam": section})
	if err != nil {
		conf = nil // texts alone: it cannot be; the engine would refuse it
	}
	return ipam.Ask{
		Conf: conf, Network: e.agent.cfg.Network.Name, ContainerID: blocks.OwnContainer, IfName: "tunnel" + strconv.Itoa(family),
		Held: held, Wishes: model.AddressWishes{Use: model.UseTunnel},
	}
}

// all are the addresses.
func (e *ends) all() []netip.Addr {
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

// run gets the addresses that are needed and gives back those that are not, until ctx ends.
func (e *ends) run(ctx context.Context) error {
	changed, cancel := e.agent.facts.Subscribe()
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
		err := e.follow(ctx, e.agent.facts.Cluster())
		if err == nil {
			trouble = ""
			continue
		}
		if words := err.Error(); words != trouble && ctx.Err() == nil {
			trouble = words
			e.agent.cfg.Log.Warn("tunnels have no address of this node's yet", "err", err)
		}
		again = e.agent.cfg.After(endsAgain)
	}
}

// follow compares what there is with what is needed.
func (e *ends) follow(ctx context.Context, c *model.Cluster) error {
	need := familiesOf(c.Pools, e.agent.tunneled)
	for _, family := range []int{4, 6} {
		e.mu.Lock()
		have, ok := e.addrs[family]
		e.mu.Unlock()
		lost := ok && elsewhere(c, have)
		if ok && (lost || !slices.Contains(need, family)) {
			if err := e.drop(ctx, family, have); err != nil {
				return err
			}
			ok = false
		}
		if ok || !slices.Contains(need, family) {
			continue
		}
		if err := e.get(ctx, family, e.agent.tunnelPools(c, family)); err != nil {
			return err
		}
	}
	return nil
}

// tunneled tells whether packets to a pool's pods may travel in a tunnel whose ends have addresses of pods.
func (a *agent) tunneled(p model.AddressPool) bool {
	if !p.OfCluster() {
		return false
	}
	kind := string(p.Encapsulation.Kind)
	if kind == "" {
		kind = a.cfg.Network.Encapsulation
	}
	return kind != "" && kind != "none" && kind != "host-gw"
}

// tunnelPools are the pools that an end's address had best be of: those of the tunnel itself. So what comes back to it comes
// through the tunnel, too.
func (a *agent) tunnelPools(c *model.Cluster, family int) []string {
	labels, _ := a.labels()
	var out []string
	for _, p := range model.Allocatable(c.Pools) {
		selector, err := model.ParseExpression(p.NodeSelector)
		if err != nil || !selector.Matches(labels) || !a.tunneled(p) || !p.Allows(model.UseTunnel) || p.AssignmentMode != model.AssignAutomatic {
			continue
		}
		if slices.Contains(familiesOf([]model.AddressPool{p}, func(model.AddressPool) bool { return true }), family) {
			out = append(out, p.Name)
		}
	}
	return out
}

// elsewhere tells whether an address is known to be another node's: its block is, or it was given away to that one.
func elsewhere(c *model.Cluster, a netip.Addr) bool {
	for _, b := range c.Blocks {
		if b.CIDR.Contains(a) {
			return b.Holder(a) != c.Self
		}
	}
	return false
}

func (e *ends) get(ctx context.Context, family int, pools []string) error {
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

func (e *ends) drop(ctx context.Context, family int, addr netip.Addr) error {
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
func (e *ends) set(family int, addr netip.Addr) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := endsFile{Boot: e.boot, Addrs: map[int]netip.Addr{}}
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
	e.agent.tellMesh()
	return nil
}

func (e *ends) allocator() (ipam.Allocator, error) {
	for _, a := range e.agent.blocks.Allocators() {
		if a.Type() == blocks.TypeCalico {
			return a, nil
		}
	}
	return nil, fmt.Errorf("there is no %s", blocks.TypeCalico)
}
