// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// watchEvery is how often pods of others are looked at, and joins.
const watchEvery = 10 * time.Second

// recoverTime bounds what is done for one machine when an agent starts.
const recoverTime = 15 * time.Second

// Load remembers the machines of an agent before this one, so that attach's own recovery takes them out of the pods
// that it undoes.
func (m *Machines) Load(ctx context.Context) error {
	err := m.cfg.Phase1.Sweep(ctx)
	all, listErr := m.local.List(ctx)
	for _, r := range all {
		m.note(r)
	}
	return errors.Join(err, listErr)
}

// Recover goes on with the machines that are there: what a killed call left unfinished is taken out of the pods, what
// went with a pod is forgotten, and weft-guests are given their wires again.
func (m *Machines) Recover(ctx context.Context) error {
	all, err := m.local.List(ctx)
	errs := []error{err}
	for _, r := range all {
		if err := m.recoverOne(ctx, r); err != nil {
			errs = append(errs, fmt.Errorf("machine %s in pod %s: %w", r.Machine, r.In, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Machines) recoverOne(ctx context.Context, r phase1.Record) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	release, err := m.cfg.Hold(ctx, turnOf(r))
	if err != nil {
		return err
	}
	defer release()
	ns, err := m.open(r)
	if err != nil {
		return m.lost(ctx, r)
	}
	defer func() { _ = ns.Close() }()
	left, err := m.cfg.Phase1.Recover(ctx, ns, r.In, r.Machine)
	if err != nil {
		return err
	}
	m.drop(r)
	if len(left.Networks) == 0 {
		return nil
	}
	m.note(left)
	return m.attend(left, ns)
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

// lost forgets a machine whose pod has gone, and all in it with it.
func (m *Machines) lost(ctx context.Context, r phase1.Record) error {
	m.local.Silence(r.Machine, r.In)
	if err := m.cfg.Phase1.Undo(ctx, nil, r.In, r.Machine); err != nil {
		return err
	}
	m.drop(r)
	return nil
}
