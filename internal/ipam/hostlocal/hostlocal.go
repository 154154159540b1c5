// SPDX-License-Identifier: Apache-2.0

// Package hostlocal allocates addresses from ranges that this node owns and records them in files: the same files, with
// the same lock, as the reference plugin host-local, so that both can serve one network.
//
//	<dataDir>/<network>/
//	  lock                  flock: held during a change of the directory
//	  last_reserved_ip.<i>  the last allocated address of range set i (round robin)
//	  10.1.0.5              "<container id>\r\n<interface>" of the attachment that has the address
//
// A file of an address is complete when it appears: it is written without a name and then linked, so a killed process
// leaves no empty one. (The reference plugin's may; GC removes them.)
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
	"github.com/weft-net/weft/internal/recent"
)

// DataDir is the reference plugin's data directory.
const DataDir = "/var/lib/cni/networks"

// Config configures an allocator.
type Config struct {
	// DataDir is used where the configuration has no dataDir; empty is the reference plugin's.
	DataDir string
	// CallerKnows: the caller itself rejects a second ADD of an attachment. Otherwise Add reads every file of the network
	// to find out.
	CallerKnows bool
}

// Allocator allocates addresses from ranges. It is safe for concurrent use.
type Allocator struct {
	cfg   Config
	mu    sync.Mutex
	locks map[string]chan struct{} // by directory: one of this process at a time, before the lock file

	parsed recent.Cache[parsed] // by configuration
}

// New returns an allocator.
func New(cfg Config) *Allocator {
	if cfg.DataDir == "" {
		cfg.DataDir = DataDir
	}
	return &Allocator{cfg: cfg, locks: map[string]chan struct{}{}}
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

// Validate rejects ranges that are malformed, too small or overlap.
func (a *Allocator) Validate(conf json.RawMessage) error {
	_, err := a.settings(ipam.Request{Conf: conf, Network: "x"})
	return err
}

// Add reserves one address of every range set.
func (a *Allocator) Add(ctx context.Context, req ipam.Request) (model.Result, error) {
	h, err := a.Reserve(ctx, req)
	if err != nil {
		return model.Result{}, err
	}
	return h.Result(), h.Commit()
}

// Reserve chooses one address of every range set and keeps the network's directory locked.
func (a *Allocator) Reserve(ctx context.Context, req ipam.Request) (ipam.Reservation, error) {
	set, err := a.settings(req)
	if err != nil {
		return nil, err
	}
	h := &pendingReservation{owner: owner(req.ContainerID, req.IfName), routes: set.routes}
	if set.resolvConf != "" {
		if h.dns, err = readResolvConf(set.resolvConf); err != nil {
			return nil, err
		}
	}
	if h.d, err = a.open(ctx, set.dir, true); err != nil {
		return nil, err
	}
	if !a.cfg.CallerKnows {
		err = set.refuseSecond(h.d, req)
	}
	var keptAddrs []netip.Addr
	if err == nil {
		keptAddrs, err = h.d.keptFor(req)
	}
	if err == nil {
		err = h.choose(set, keptAddrs)
	}
	if err != nil {
		h.Cancel()
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

// refuseSecond rejects an attachment that has an address of a range already, unless it requests specific addresses:
// allocating them again fails anyway.
func (s settings) refuseSecond(d *directory, req ipam.Request) error {
	if len(s.requested) > 0 {
		return nil
	}
	held, err := d.heldBy(req.ContainerID, req.IfName)
	if err != nil {
		return err
	}
	for _, addr := range held {
		for _, set := range s.sets {
			if set.contains(addr) {
				return model.Errorf(model.CodeExists, "DEL the attachment first",
					"%s has been allocated to %s, duplicate allocation is not allowed", addr, req.ContainerID)
			}
		}
	}
	return nil
}

// Del releases every address of the attachment. It needs no valid configuration but the network and the directory.
func (a *Allocator) Del(ctx context.Context, req ipam.Request) error {
	dir, err := a.directoryOf(req)
	if err != nil {
		return err
	}
	d, err := a.open(ctx, dir, false)
	if err != nil || d == nil {
		return err
	}
	defer d.close()
	held := slices.DeleteFunc(slices.Clone(req.Held), func(addr netip.Addr) bool {
		return !d.isHeldBy(addr, req.ContainerID, req.IfName)
	})
	if len(req.Held) == 0 {
		if held, err = d.heldBy(req.ContainerID, req.IfName); err != nil {
			return err
		}
	}
	for _, addr := range held {
		var err error
		if req.VM != nil {
			err = d.keepFor(addr, *req.VM, req.IfName)
		} else {
			err = d.remove(addr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
