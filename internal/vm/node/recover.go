// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// watchEvery is the interval at which foreign pods and joins are checked.
const watchEvery = 10 * time.Second

// serveTime is the timeout for one VM when an agent starts.
const serveTime = 15 * time.Second

// Load reads the VMs of an earlier agent, so that attach's recovery can undo them. It moves records of an earlier
// version, which are not in the ledger, to the ledger first.
func (m *Registry) Load(ctx context.Context) error {
	err := m.cfg.Phase1.Adopt(ctx)
	all, listErr := m.local.List(ctx)
	for _, r := range all {
		m.put(r)
	}
	return errors.Join(err, listErr)
}

// Records returns the records of all VMs, also of earlier boots.
func (m *Registry) Records() ([]attach.Record, error) { return m.cfg.Phase1.Stored() }

// Open opens the namespace of a VM's pod, nil if it is gone.
func (m *Registry) Open(stored attach.Record) *netns.NS {
	r, err := phase1.RecordOf(stored)
	if err != nil {
		return nil
	}
	ns, err := m.open(r)
	if err != nil {
		return nil
	}
	return ns
}

// open opens the namespace of a VM's pod, by the path of the VM's call or by its attachments'.
func (m *Registry) open(r phase1.Record) (*netns.NS, error) {
	return host.OpenPod(r, m.runtimePaths(r)...)
}

// runtimePaths are the paths of the namespace of a VM's pod that its attachments have.
func (m *Registry) runtimePaths(r phase1.Record) (paths []string) {
	if r.Container == "" {
		return nil
	}
	records, err := m.attached(r.Container)
	if err != nil {
		return nil
	}
	for _, a := range records {
		paths = append(paths, a.Request.Netns)
	}
	return paths
}

// Undo undoes the chosen networks of a VM. The caller holds the sandbox's lock; the pod's namespace may be gone.
func (m *Registry) Undo(
	ctx context.Context, stored attach.Record, ns *netns.NS, chosen func(attach.Act) bool,
) error {
	r, err := phase1.RecordOf(stored)
	if err != nil {
		return err
	}
	if ns != nil {
		if name, err := phase1.Identity(ns); err != nil || name != r.Namespace {
			ns = nil
		}
	}
	return m.undo(ctx, r, ns, chosen)
}

// undo undoes some of a VM's networks. If it fails, watch tries again.
func (m *Registry) undo(ctx context.Context, r phase1.Record, ns *netns.NS, chosen func(attach.Act) bool) error {
	left, err := m.local.UndoSome(ctx, ns, r, chosen)
	if err != nil {
		var found bool
		var readErr error
		if left, found, readErr = m.cfg.Phase1.Read(r.VM, r.PodID); readErr != nil || !found {
			return errors.Join(err, readErr)
		}
	}
	m.remove(r)
	m.put(left)
	return err
}

// unfinished reports whether an act was left by an interrupted call.
func unfinished(act attach.Act) bool { return act.State != attach.ActFinished }

// Forget deletes the record of a VM of an earlier boot.
func (m *Registry) Forget(ctx context.Context, stored attach.Record) error {
	return m.cfg.Phase1.Forget(ctx, stored.VM.Pod, stored.VM.Key)
}

// Serve starts to serve weft-guest for all VMs, after a recovery.
func (m *Registry) Serve(ctx context.Context) error {
	all, err := m.local.List(ctx)
	errs := []error{err}
	for _, r := range all {
		if err := m.serveOne(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("VM %s in pod %s: %w", r.VM, r.PodID, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Registry) serveOne(ctx context.Context, r phase1.Record) error {
	ctx, cancel := context.WithTimeout(ctx, serveTime)
	defer cancel()
	release, err := m.cfg.LockSandbox(ctx, lockOf(r))
	if err != nil {
		return err
	}
	defer release()
	ns, err := m.open(r)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return m.serveGuests(r, ns)
}

// releaseGone deletes the record of a VM whose pod is gone, with all of its objects.
func (m *Registry) releaseGone(ctx context.Context, r phase1.Record) error {
	m.local.StopServing(r.VM, r.PodID)
	if err := m.cfg.Phase1.Undo(ctx, nil, r.PodID, r.VM); err != nil {
		return err
	}
	m.remove(r)
	return nil
}
