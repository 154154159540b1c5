// SPDX-License-Identifier: Apache-2.0

// Package lease keeps DHCP leases for as long as their attachments live: it renews them, remembers them over a restart,
// and gives them back. The agent has a Keeper of its own; `weft dhcp daemon` serves one to plugins.
//
// # On disk
//
//	<dir>/lock          flock: held by the process that keeps these leases
//	<dir>/<hash>.json   one attachment: who it is, and the servers' last words
//
// A file is there before the first message is sent, so a killed process leaves no lease that nobody knows of: a file
// without a grant is asked for once more, and given back. Times are absolute; files of another boot are void.
//
// # One lease's life
//
//	bound   until T1: its interface is looked at now and then; when it was down, the lease is confirmed at once
//	T1      its server is asked for more time, again and again
//	T2      every server is
//	refused, expired   the old address is asked for as if it were new; with any other answer the lease is lost
//	lost    the interface goes down when it has no lease left: the address may be somebody else's by now. The address of a
//	        container cannot be changed behind its runtime's back, so the attachment has to be made anew.
//
// When the namespace or the interface is gone the lease is released (from the node, for want of a better place, if its
// server can be reached from there) and forgotten.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/model"
)

// poll is how often a lease's interface is looked at.
const poll = 5 * time.Second

// Config is a Keeper's.
type Config struct {
	// Dir holds the leases. It must not outlive a boot, or Boot must tell.
	Dir  string
	Boot string
	// HostPrefix stands before the paths of namespaces.
	HostPrefix string
	World      exchange.World
	// Broadcast asks servers to broadcast their answers.
	Broadcast bool
	// Poll is how often interfaces are looked at; 0 means the default.
	Poll time.Duration
	Log  *slog.Logger
	// Step, which may be nil, is called before and after each thing that is done, for fault tests.
	Step failpoint.Hook
}

// Keeper keeps leases. It is safe for concurrent use.
type Keeper struct {
	cfg  Config
	lock *os.File
	ctx  context.Context // ends when the Keeper is closed
	stop context.CancelFunc
	wait sync.WaitGroup

	mu     sync.Mutex
	leases map[model.AttachmentKey]*kept
	turns  map[model.AttachmentKey]*turn
}

// kept is a lease that is kept: while keep runs, the record is its.
type kept struct {
	mu   sync.Mutex
	rec  record
	stop context.CancelFunc
	done chan struct{}
}

// Open takes over a directory and goes on with the leases in it.
func Open(cfg Config) (*Keeper, error) {
	if cfg.Poll == 0 {
		cfg.Poll = poll
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("room", "dhcp")
	k := &Keeper{cfg: cfg, leases: map[model.AttachmentKey]*kept{}, turns: map[model.AttachmentKey]*turn{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	var err error
	if k.lock, err = claim(cfg.Dir); err != nil {
		return nil, err
	}
	records, err := k.load()
	if err != nil {
		_ = k.Close()
		return nil, err
	}
	for _, rec := range records {
		k.start(rec)
	}
	if len(records) > 0 {
		cfg.Log.Info("leases taken over", "count", len(records))
	}
	return k, nil
}

// Close stops keeping; the leases stay as they are, for the next Open.
func (k *Keeper) Close() error {
	k.stop()
	k.wait.Wait()
	return k.lock.Close()
}

// Type is "dhcp".
func (*Keeper) Type() string { return dhcp.Type }

// Keys are the options.
func (*Keeper) Keys() []string { return dhcp.Keys() }

// Capabilities tells that messages go through the attachment's interface.
func (*Keeper) Capabilities() ipam.Capabilities { return ipam.Capabilities{NeedsLink: true} }

// Validate refuses a configuration that can never give an address.
func (*Keeper) Validate(conf json.RawMessage) error {
	_, err := dhcp.Read(conf, nil)
	return err
}

// Status tells whether leases can be kept.
func (k *Keeper) Status(_ context.Context, ask ipam.Ask) error {
	if k.ctx.Err() != nil {
		return model.Faultf(model.CodeNotAvailable, "start it again", "dhcp: the keeper of leases is stopped")
	}
	return k.Validate(ask.Conf)
}

// Add gets a lease of each family, or tells what the attachment has already.
func (k *Keeper) Add(ctx context.Context, ask ipam.Ask) (model.Result, error) {
	none := model.Result{}
	set, err := dhcp.Read(ask.Conf, ask.Args)
	if err != nil {
		return none, err
	}
	release, err := k.turn(ctx, ask.Key())
	if err != nil {
		return none, err
	}
	defer release()
	if old := k.find(ask.Key()); old != nil {
		if rec := old.snapshot(); k.holds(rec, ask) {
			return rec.result()
		}
		if err := k.drop(ctx, old); err != nil {
			return none, err
		}
	}
	rec, err := k.acquire(ctx, newRecord(ask, set, k.cfg))
	if err != nil {
		return none, err
	}
	k.start(rec.clone()) // a record of its own: it is renewed while this one is read
	return rec.result()
}

// Del releases what the attachment has.
func (k *Keeper) Del(ctx context.Context, ask ipam.Ask) error {
	release, err := k.turn(ctx, ask.Key())
	if err != nil {
		return err
	}
	defer release()
	if old := k.find(ask.Key()); old != nil {
		return k.drop(ctx, old)
	}
	return nil
}

// Check tells whether the attachment has the leases of the addresses that prev says.
func (k *Keeper) Check(_ context.Context, ask ipam.Ask, prev model.Result) error {
	l := k.find(ask.Key())
	if l == nil {
		return model.Faultf(model.CodeDiffers, "DEL it, then ADD it again", "dhcp: no lease is kept for %s", ask.Key())
	}
	rec := l.snapshot()
	if rec.Lost != "" {
		return model.Faultf(model.CodeDiffers, "DEL it, then ADD it again", "dhcp: lease of %s is lost: %s",
			ask.Key(), rec.Lost)
	}
	have, err := rec.result()
	if err != nil {
		return err
	}
	for _, ip := range have.IPs {
		found := false
		for _, p := range prev.IPs {
			found = found || p.Address == ip.Address
		}
		if !found {
			return model.Faultf(model.CodeDiffers, "DEL it, then ADD it again",
				"dhcp: prevResult does not have the leased address %s", ip.Address)
		}
	}
	return nil
}

// GC releases the network's leases that no valid attachment has.
func (k *Keeper) GC(ctx context.Context, ask ipam.Ask, valid []model.AttachmentKey) error {
	keep := map[model.AttachmentKey]bool{}
	for _, key := range valid {
		key.Network = ask.Network
		keep[key] = true
	}
	k.mu.Lock()
	var stale []model.AttachmentKey
	for key := range k.leases {
		if key.Network == ask.Network && !keep[key] {
			stale = append(stale, key)
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, key := range stale {
		err := k.Del(ctx, ipam.Ask{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName})
		if err != nil {
			errs = append(errs, fmt.Errorf("lease of %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) find(key model.AttachmentKey) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leases[key]
}

func (l *kept) snapshot() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.clone()
}
