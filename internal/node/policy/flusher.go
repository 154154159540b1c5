// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/state"
)

// flushPause batches released addresses, unless an ADD waits for one of them: dumping conntrack is expensive.
const flushPause = 20 * time.Millisecond

// flusher deletes the conntrack entries of addresses whose interfaces are gone. Packets of an established connection
// are allowed without a policy, and the next interface with the address is another pod's.
type flusher struct {
	cfg     *Config
	log     *slog.Logger
	desired *desired // its lock guards the fields below

	// released are addresses whose connections are still tracked.
	released map[netip.Addr]bool

	due, hurry notify.Chan
}

func newFlusher(cfg *Config, log *slog.Logger, d *desired) *flusher {
	return &flusher{
		cfg: cfg, log: log, desired: d, released: map[netip.Addr]bool{}, due: notify.New(), hurry: notify.New(),
	}
}

// release records the addresses of an interface that is gone, except those of a VM that has migrated to another node
// and those that another interface of this node has.
func (fl *flusher) release(e model.WorkloadEndpoint) {
	if e.Standby {
		return
	}
	fl.desired.mu.Lock()
	defer fl.desired.mu.Unlock()
	for _, a := range e.Addrs {
		if !fl.desired.hasLocked(a) {
			fl.released[a] = true
		}
	}
	fl.due.Notify()
}

// await waits until the conntrack entries of earlier owners of the interfaces' addresses are deleted.
func (fl *flusher) await(ctx context.Context, all []model.WorkloadEndpoint) error {
	clean := func() bool {
		return !slices.ContainsFunc(all, func(e model.WorkloadEndpoint) bool {
			return slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return fl.released[a] })
		})
	}
	fl.desired.mu.Lock()
	ready := clean()
	fl.desired.mu.Unlock()
	if ready {
		return nil
	}
	fl.hurry.Notify()
	if !fl.desired.await(ctx, startTimeout, clean) {
		return model.Errorf(model.CodeTryAgain, "it is tried again; look at the agent's log",
			"connections of the pod that had the address before are still tracked")
	}
	return nil
}

// run flushes released addresses until ctx ends.
func (fl *flusher) run(ctx context.Context) error {
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-fl.due:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-fl.hurry:
		case <-fl.cfg.After(flushPause):
		}
		err := fl.flush()
		if err == nil || errors.Is(err, os.ErrClosed) {
			failed = false
			continue
		}
		if !failed {
			fl.log.Warn("conntrack entries of released addresses could not be deleted; agent retries", "err", err)
		}
		failed = true
		fl.due.Notify()
	}
}

// flush deletes the conntrack entries of all released addresses.
func (fl *flusher) flush() error {
	var peers []state.ConntrackPeer
	fl.desired.mu.Lock()
	for a := range fl.released {
		peers = append(peers, state.ConntrackPeer{Addr: a, Originates: true, Responds: true})
	}
	fl.desired.mu.Unlock()
	if len(peers) == 0 {
		return nil
	}
	found, err := fl.cfg.Host.FindConntrack(peers, func(state.Connection) bool { return true })
	if err == nil {
		err = fl.forget(found)
	}
	if err != nil {
		return err
	}
	fl.desired.mu.Lock()
	defer fl.desired.mu.Unlock()
	for _, p := range peers {
		delete(fl.released, p.Addr)
	}
	fl.desired.changedLocked()
	return nil
}

func (fl *flusher) forget(found []kernel.FoundConnection) error {
	if len(found) == 0 {
		return nil
	}
	fl.log.Debug("connections of released addresses are forgotten", "count", len(found))
	defer fl.cfg.connectionsEnded()
	return fl.cfg.Host.DeleteConntrack(found)
}
