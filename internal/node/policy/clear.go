// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// Clear removes the tables of an earlier Enforcer where policies are not enforced any more: on the node, and in the
// pods of these interfaces.
func Clear(ctx context.Context, host *kernel.Conn, all ...model.WorkloadEndpoint) error {
	mine := []state.Table{{Family: policy.TableFamily, Name: policy.TableName}}
	errs := []error{host.RemoveTables(ctx, append(emptyTables(policy.EnforcementPoint{Ports: true}), mine...))}
	if _, _, err := host.Quarantine(ctx, nil); err != nil {
		errs = append(errs, err)
	}
	for _, g := range all {
		if g.HostEnd != model.HostEndRouted && g.Netns != "" && ctx.Err() == nil {
			errs = append(errs, clearPod(ctx, g, slices.Concat(mine, emptyTables(policy.EnforcementPoint{Tap: g.IfName}))))
		}
	}
	return errors.Join(errs...)
}

// clearStale removes the tables of an earlier agent in pods whose interfaces are enforced at bridge ports now, after
// the rules there are written. A pod with other interfaces that are enforced in it keeps its table, which is updated
// as usual. The caller has the kernel lock of the pods' tables, so that no new table is written meanwhile and taken for
// an old one.
func (pt *podTables) clearStale(ctx context.Context) {
	for _, g := range pt.toClear() {
		err := inPod(g, func(at *kernel.Conn) error {
			return at.RemoveTables(ctx, []state.Table{{Family: policy.TableFamily, Name: policy.TableName}})
		})
		pt.desired.mu.Lock()
		logged, still := pt.stale[g.Attachment]
		switch {
		case err == nil:
			delete(pt.stale, g.Attachment)
		case still:
			pt.stale[g.Attachment] = true
		}
		pt.desired.mu.Unlock()
		if err != nil && !logged {
			pt.log.Error(
				"old table in a pod could not be removed and stays in force; agent retries",
				"err", err,
			)
		}
	}
}

// toClear returns the interfaces whose pods may have an old table; none while the rules at the ports are not written.
func (pt *podTables) toClear() []model.WorkloadEndpoint {
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	if !pt.node.inSync || pt.node.bridges != nil || len(pt.stale) == 0 {
		return nil
	}
	var out []model.WorkloadEndpoint
	kept := pt.desired.podPlacesLocked()
	for key := range pt.stale {
		if l := pt.desired.local[key]; l != nil && !slices.Contains(kept, policy.EnforcementPoint{Pod: l.Pod}) {
			out = append(out, l.WorkloadEndpoint)
			continue
		}
		delete(pt.stale, key)
	}
	return out
}

func clearPod(ctx context.Context, g model.WorkloadEndpoint, mine []state.Table) error {
	return inPod(g, func(at *kernel.Conn) error {
		_, _, opened := at.Quarantine(ctx, nil)
		return errors.Join(at.RemoveTables(ctx, mine), opened)
	})
}

// inPod calls f with the namespace of an interface's pod, if it still exists.
func inPod(g model.WorkloadEndpoint, f func(at *kernel.Conn) error) error {
	ns, err := netns.Open(g.Netns)
	if errors.Is(err, netns.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", g.Pod, err)
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err != nil || id != g.NetnsID {
		return err
	}
	conn, err := kernel.Dial(ns)
	if err == nil {
		err = errors.Join(f(conn), conn.Close())
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", g.Pod, err)
	}
	return nil
}
