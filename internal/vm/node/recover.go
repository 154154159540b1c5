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

// watchEvery is how often pods of others are looked at, and joins.
const watchEvery = 10 * time.Second

// serveTime bounds what is done for one machine when an agent starts.
const serveTime = 15 * time.Second

// Load remembers the machines of an agent before this one, so that attach's recovery takes them out of the pods that it
// undoes. What an agent of an earlier version has written beside the ledger goes into it first.
func (m *Machines) Load(ctx context.Context) error {
	err := m.cfg.Phase1.Adopt(ctx)
	all, listErr := m.local.List(ctx)
	for _, r := range all {
		m.note(r)
	}
	return errors.Join(err, listErr)
}

// Records are those of all machines, also of earlier boots.
func (m *Machines) Records() ([]attach.Record, error) { return m.cfg.Phase1.Stored() }

// Open opens the namespace of a machine's pod, nil where that has gone.
func (m *Machines) Open(stored attach.Record) *netns.NS {
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

// open opens the namespace of a machine's pod, by the path that the machine's call had or by its attachments'.
func (m *Machines) open(r phase1.Record) (*netns.NS, error) {
	var paths []string
	if records, err := m.attached(r.Container); r.Container != "" && err == nil {
		for _, a := range records {
			paths = append(paths, a.Request.Netns)
		}
	}
	return host.PodOf(r, paths...)
}

// Undo takes the chosen networks of a machine out of its pod. The caller has the sandbox's turn; the pod's namespace may
// be gone.
func (m *Machines) Undo(
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

// undo undoes some of a machine's networks. What cannot be undone is tried again when the machine is looked at.
func (m *Machines) undo(ctx context.Context, r phase1.Record, ns *netns.NS, chosen func(attach.Act) bool) error {
	left, err := m.local.UndoSome(ctx, ns, r, chosen)
	if err != nil {
		var found bool
		var readErr error
		if left, found, readErr = m.cfg.Phase1.Read(r.Machine, r.In); readErr != nil || !found {
			return errors.Join(err, readErr)
		}
	}
	m.drop(r)
	m.note(left)
	return err
}

// unfinished chooses what a call that did not come to its end has left.
func unfinished(act attach.Act) bool { return act.State != attach.ActFinished }

// Forget forgets a machine of an earlier boot.
func (m *Machines) Forget(ctx context.Context, stored attach.Record) error {
	return m.cfg.Phase1.Forget(ctx, stored.Machine.Pod, stored.Machine.Key)
}

// Serve gives weft-guests the wires of the machines that are there, after a recovery.
func (m *Machines) Serve(ctx context.Context) error {
	all, err := m.local.List(ctx)
	errs := []error{err}
	for _, r := range all {
		if err := m.serveOne(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("machine %s in pod %s: %w", r.Machine, r.In, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Machines) serveOne(ctx context.Context, r phase1.Record) error {
	ctx, cancel := context.WithTimeout(ctx, serveTime)
	defer cancel()
	release, err := m.cfg.Hold(ctx, turnOf(r))
	if err != nil {
		return err
	}
	defer release()
	ns, err := m.open(r)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return m.attend(r, ns)
}

// lost forgets a machine whose pod has gone, and all in it with it.
func (m *Machines) lost(ctx context.Context, r phase1.Record) error {
	m.local.Silence(r.Machine, r.In)
	if err := m.cfg.Phase1.Undo(ctx, nil, r.In, r.Machine); err != nil {
		return err
	}
	m.drop(r)
	return nil
}
