// SPDX-License-Identifier: Apache-2.0

// Package hostlocal gives addresses from ranges that this node owns and remembers them in files: the same files, with
// the same lock, as the reference plugin host-local, so that both can serve one network in turns.
//
//	<dataDir>/<network>/
//	  lock                  flock: held by whoever changes the directory
//	  last_reserved_ip.<i>  where the round robin through range set i stands
//	  10.1.0.5              "<container id>\r\n<interface>" of the attachment that has the address
//
// A file of an address is complete when it appears: it is written without a name and then linked, so a killed process
// leaves no empty one. (The reference plugin's may; GC takes them.)
package hostlocal

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/model"
)

// DataDir is where the reference plugin keeps its directories.
const DataDir = "/var/lib/cni/networks"

// Config says how an allocator works.
type Config struct {
	// DataDir is used where the configuration has no dataDir; empty is the reference plugin's.
	DataDir string
	// CallerKnows says that the caller itself refuses a second ADD of an attachment. Otherwise Add reads every file of
	// the network to find out.
	CallerKnows bool
}

// Allocator gives addresses from ranges. It is safe for concurrent use.
type Allocator struct {
	cfg  Config
	mu   sync.Mutex
	turn map[string]chan struct{} // by directory: one of this process at a time, before the lock file
}

// New makes an allocator.
func New(cfg Config) *Allocator {
	if cfg.DataDir == "" {
		cfg.DataDir = DataDir
	}
	return &Allocator{cfg: cfg, turn: map[string]chan struct{}{}}
}

// Type is "host-local".
func (*Allocator) Type() string { return "host-local" }

// Keys are the options of the reference plugin.
func (*Allocator) Keys() []string {
	return []string{
		"type", "subnet", "rangeStart", "rangeEnd", "gateway", "ranges[][].subnet", "ranges[][].rangeStart",
		"ranges[][].rangeEnd", "ranges[][].gateway", "routes[].dst", "routes[].gw", "routes[].mtu", "routes[].advmss",
		"routes[].priority", "routes[].table", "routes[].scope", "dataDir", "resolvConf",
	}
}

// Validate refuses ranges that are malformed, too small or overlap.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := a.settings(ipam.Ask{Conf: conf, Network: "x"})
	return err
}

// Add reserves one address of every range set.
func (a *Allocator) Add(ctx context.Context, ask ipam.Ask) (model.Result, error) {
	h, err := a.Hold(ctx, ask)
	if err != nil {
		return model.Result{}, err
	}
	return h.Result(), h.Keep()
}

// Hold chooses one address of every range set and keeps the network's directory locked.
func (a *Allocator) Hold(ctx context.Context, ask ipam.Ask) (ipam.Hold, error) {
	set, err := a.settings(ask)
	if err != nil {
		return nil, err
	}
	h := &hold{owner: owner(ask.ContainerID, ask.IfName), routes: set.routes}
	if set.resolvConf != "" {
		if h.dns, err = readResolvConf(set.resolvConf); err != nil {
			return nil, err
		}
	}
	if h.d, err = a.open(ctx, set.dir, true); err != nil {
		return nil, err
	}
	if !a.cfg.CallerKnows {
		err = set.refuseSecond(h.d, ask)
	}
	var promised []netip.Addr
	if err == nil {
		promised, err = h.d.promised(ask)
	}
	if err == nil {
		err = h.choose(set, promised)
	}
	if err != nil {
		h.Drop()
		return nil, err
	}
	return h, nil
}

func join(addrs []netip.Addr) string {
	words := make([]string, 0, len(addrs))
	for _, a := range addrs {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}

// refuseSecond refuses an attachment that has an address of a range already, unless it asks for certain addresses: then
// taking them fails by itself.
func (s settings) refuseSecond(d *directory, ask ipam.Ask) error {
	if len(s.requested) > 0 {
		return nil
	}
	held, err := d.heldBy(ask.ContainerID, ask.IfName)
	if err != nil {
		return err
	}
	for _, addr := range held {
		for _, set := range s.sets {
			if set.contains(addr) {
				return model.Faultf(model.CodeExists, "DEL the attachment first",
					"%s has been allocated to %s, duplicate allocation is not allowed", addr, ask.ContainerID)
			}
		}
	}
	return nil
}

// Del gives back every address of the attachment. It needs no valid configuration but the network and the directory.
func (a *Allocator) Del(ctx context.Context, ask ipam.Ask) error {
	dir, err := a.directoryOf(ask)
	if err != nil {
		return err
	}
	d, err := a.open(ctx, dir, false)
	if err != nil || d == nil {
		return err
	}
	defer d.close()
	held := slices.DeleteFunc(slices.Clone(ask.Held), func(addr netip.Addr) bool {
		return !d.isHeldBy(addr, ask.ContainerID, ask.IfName)
	})
	if len(ask.Held) == 0 {
		if held, err = d.heldBy(ask.ContainerID, ask.IfName); err != nil {
			return err
		}
	}
	for _, addr := range held {
		var err error
		if ask.VM != nil {
			err = d.promise(addr, *ask.VM, ask.IfName)
		} else {
			err = d.remove(addr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
