// SPDX-License-Identifier: Apache-2.0

// Package lease manages DHCP leases while their attachments exist: it renews them, restores them after a restart, and
// releases them. The agent has its own Manager; `weft dhcp daemon` serves one to plugins.
//
// # On disk
//
//	<dir>/lock          flock: held by the process that manages these leases
//	<dir>/<hash>.json   one attachment: its identity, and the servers' last messages
//
// A file is written before the first message is sent, so a killed process leaves no unknown lease: the lease of a file
// without a grant is requested again, and released. Times are absolute; files of another boot are invalid.
//
// # One lease's life
//
//	bound   until T1: its interface is looked at now and then; when it was down, the lease is confirmed at once
//	T1      the client renews at its server, repeatedly
//	T2      every server is
//	refused, expired   the client requests the old address as a new lease; on any other response the lease is lost
//	lost    the interface goes down when it has no lease left: the server may have assigned the address again. The address of a
//	        container cannot be changed behind its runtime's back, so the attachment must be re-created.
//
// When the namespace or the interface is gone the lease is released from the node, if its server can be reached from
// there, and forgotten.
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
	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/dhcp"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// poll is how often a lease's interface is checked.
const poll = 5 * time.Second

// Config configures a Manager.
type Config struct {
	// Dir has the leases. It must not outlive a boot, unless Boot is set.
	Dir  string
	Boot string
	// HostPrefix is prepended to the paths of namespaces.
	HostPrefix string
	Exchange   exchange.Options
	// Broadcast asks servers to broadcast their answers.
	Broadcast bool
	// Poll is how often interfaces are checked; 0 means the default.
	Poll time.Duration
	// Deletions reports deleted namespaces, in which no answer is waited for any more; nil means one of the Manager's own.
	Deletions *netns.Deletions
	Log       *slog.Logger
	// Failpoint is called before and after each operation, for fault tests; it may be nil.
	Failpoint failpoint.Hook
}

// Manager manages leases. It is safe for concurrent use.
type Manager struct {
	cfg  Config
	lock *os.File
	ctx  context.Context // ends when the Manager is closed
	stop context.CancelFunc
	wait sync.WaitGroup

	mu     sync.Mutex
	leases map[model.AttachmentKey]*managedLease
	turns  map[model.AttachmentKey]*callLock
}

// managedLease is a lease and its renewer, which owns the record while it runs.
type managedLease struct {
	mu   sync.Mutex
	rec  record
	stop context.CancelFunc
	done chan struct{}
}

// Open locks a directory and continues with the leases in it.
func Open(cfg Config) (*Manager, error) {
	if cfg.Poll == 0 {
		cfg.Poll = poll
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log = cfg.Log.With("component", "dhcp")
	k := &Manager{cfg: cfg, leases: map[model.AttachmentKey]*managedLease{}, turns: map[model.AttachmentKey]*callLock{}}
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
	if k.cfg.Deletions == nil {
		events, err := inotify.New()
		if err != nil {
			cfg.Log.Warn("deletions of namespaces are not reported, and are looked for periodically", "err", err)
		}
		k.cfg.Deletions = netns.NewDeletions(events, time.After)
		k.wait.Go(func() { _ = events.Run(k.ctx) })
		k.wait.Go(func() { _ = k.cfg.Deletions.Run(k.ctx) })
	}
	for _, rec := range records {
		k.start(rec)
	}
	if len(records) > 0 {
		cfg.Log.Info("leases were restored", "count", len(records))
	}
	return k, nil
}

// Close stops renewals; the leases stay for the next Open.
func (k *Manager) Close() error {
	k.stop()
	k.wait.Wait()
	return k.lock.Close()
}

// Type is "dhcp".
func (*Manager) Type() string { return dhcp.Type }

// Keys are the options.
func (*Manager) Keys() []string { return dhcp.Keys() }

// Capabilities returns NeedsLink: messages go through the attachment's interface.
func (*Manager) Capabilities() ipam.Capabilities { return ipam.Capabilities{NeedsLink: true} }

// Validate rejects a configuration that can never allocate an address.
func (*Manager) Validate(conf json.RawMessage) error {
	_, err := dhcp.Read(conf, nil)
	return err
}

// Status reports whether the manager runs.
func (k *Manager) Status(_ context.Context, req ipam.Request) error {
	if k.ctx.Err() != nil {
		return model.Errorf(model.CodeNotAvailable, "start it again", "dhcp: the lease manager is stopped")
	}
	return k.Validate(req.Conf)
}

// Add acquires a lease of each family, or returns those that the attachment has already.
func (k *Manager) Add(ctx context.Context, req ipam.Request) (model.Result, error) {
	none := model.Result{}
	set, err := dhcp.Read(req.Conf, req.Args)
	if err != nil {
		return none, err
	}
	release, err := k.lockCalls(ctx, req.Key())
	if err != nil {
		return none, err
	}
	defer release()
	if old := k.find(req.Key()); old != nil {
		if rec := old.snapshot(); k.matches(rec, req) {
			return rec.result()
		}
		if err := k.drop(ctx, old); err != nil {
			return none, err
		}
	}
	rec, err := k.acquire(ctx, newRecord(req, set, k.cfg))
	if err != nil {
		return none, err
	}
	k.start(rec.clone()) // a record of its own: it is renewed while this one is read
	return rec.result()
}

// Del releases what the attachment has.
func (k *Manager) Del(ctx context.Context, req ipam.Request) error {
	release, err := k.lockCalls(ctx, req.Key())
	if err != nil {
		return err
	}
	defer release()
	if old := k.find(req.Key()); old != nil {
		return k.drop(ctx, old)
	}
	return nil
}

// Check reports whether the attachment has leases of the addresses of prev.
func (k *Manager) Check(_ context.Context, req ipam.Request, prev model.Result) error {
	l := k.find(req.Key())
	if l == nil {
		return model.Errorf(model.CodeDiffers, "DEL it, then ADD it again", "dhcp: no lease is kept for %s", req.Key())
	}
	rec := l.snapshot()
	if rec.Lost != "" {
		return model.Errorf(model.CodeDiffers, "DEL it, then ADD it again", "dhcp: lease of %s is lost: %s",
			req.Key(), rec.Lost)
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
			return model.Errorf(model.CodeDiffers, "DEL it, then ADD it again",
				"dhcp: prevResult does not have the leased address %s", ip.Address)
		}
	}
	return nil
}

// GC releases the network's leases that no valid attachment has.
func (k *Manager) GC(ctx context.Context, req ipam.Request, valid []model.AttachmentKey) error {
	keep := map[model.AttachmentKey]bool{}
	for _, key := range valid {
		key.Network = req.Network
		keep[key] = true
	}
	k.mu.Lock()
	var stale []model.AttachmentKey
	for key := range k.leases {
		if key.Network == req.Network && !keep[key] {
			stale = append(stale, key)
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, key := range stale {
		err := k.Del(ctx, ipam.Request{Network: key.Network, ContainerID: key.ContainerID, IfName: key.IfName})
		if err != nil {
			errs = append(errs, fmt.Errorf("lease of %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

func (k *Manager) find(key model.AttachmentKey) *managedLease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leases[key]
}

func (l *managedLease) snapshot() record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec.clone()
}
