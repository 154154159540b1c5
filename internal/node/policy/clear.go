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

// Clear takes away what an Enforcer before has left, where policies are not obeyed any more: on the node, and in the
// pods whose interfaces these are.
func Clear(ctx context.Context, host *kernel.Conn, all ...model.WorkloadEndpoint) error {
	mine := []state.Table{{Family: policy.TableFamily, Name: policy.TableName}}
	errs := []error{host.RemoveTables(ctx, append(bare(policy.Place{Ports: true}), mine...))}
	if _, _, err := host.Bar(ctx, nil); err != nil {
		errs = append(errs, err)
	}
	for _, g := range all {
		if g.HostEnd != model.HostEndRouted && g.Netns != "" && ctx.Err() == nil {
			errs = append(errs, clearPod(ctx, g, slices.Concat(mine, bare(policy.Place{Tap: g.IfName}))))
		}
	}
	return errors.Join(errs...)
}

// clearStale takes away what an agent before has written into pods whose interfaces are judged at ports of bridges now,
// once the rules there stand. A pod whose other interfaces are judged in it keeps its table, which is made right as any
// other. It is the turn of who writes in pods: nobody writes a table meanwhile that would be taken for an old one.
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
				"the table that an earlier agent left in a pod cannot be removed, and denies what it denied; it is tried again",
				"err", err,
			)
		}
	}
}

// toClear are the interfaces whose pods may have an old table; there is none while the rules at the ports do not stand.
func (pt *podTables) toClear() []model.WorkloadEndpoint {
	pt.desired.mu.Lock()
	defer pt.desired.mu.Unlock()
	if !pt.node.right || pt.node.bridges != nil || len(pt.stale) == 0 {
		return nil
	}
	var out []model.WorkloadEndpoint
	kept := pt.desired.podPlaces()
	for key := range pt.stale {
		if l := pt.desired.local[key]; l != nil && !slices.Contains(kept, policy.Place{Pod: l.Pod}) {
			out = append(out, l.WorkloadEndpoint)
			continue
		}
		delete(pt.stale, key)
	}
	return out
}

func clearPod(ctx context.Context, g model.WorkloadEndpoint, mine []state.Table) error {
	return inPod(g, func(at *kernel.Conn) error {
		_, _, opened := at.Bar(ctx, nil)
		return errors.Join(at.RemoveTables(ctx, mine), opened)
	})
}

// inPod calls f with the namespace of an interface's pod, unless that is gone.
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
