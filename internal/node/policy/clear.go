// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// Clear takes away what an Enforcer before has left, where policies are not obeyed any more: on the node, and in the pods
// whose interfaces these are.
func Clear(ctx context.Context, host *kernel.Conn, all ...attach.Guarded) error {
	mine := []state.Table{{Family: policy.TableFamily, Name: policy.TableName}}
	errs := []error{host.RemoveTables(ctx, append(bare(policy.Place{Ports: true}), mine...))}
	if _, _, err := host.Bar(ctx, nil); err != nil {
		errs = append(errs, err)
	}
	for _, g := range all {
		if g.HostLink == "" && g.Path != "" && ctx.Err() == nil {
			errs = append(errs, clearPod(ctx, g, slices.Concat(mine, bare(policy.Place{Tap: g.IfName}))))
		}
	}
	return errors.Join(errs...)
}

// clearStale takes away what an agent before has written into pods whose interfaces are judged at ports of bridges now, once the rules
// there stand. A pod whose other interfaces are judged in it keeps its table, which is made right as any other. The lock is held.
func (e *Enforcer) clearStale(ctx context.Context) {
	if !e.right || e.bridges != nil {
		return
	}
	kept := e.podPlaces()
	for key, logged := range e.stale {
		if l := e.local[key]; l != nil && !slices.Contains(kept, policy.Place{Pod: l.endpoint.Pod}) {
			err := inPod(l.Guarded, func(at *kernel.Conn) error {
				return at.RemoveTables(ctx, []state.Table{{Family: policy.TableFamily, Name: policy.TableName}})
			})
			if err != nil && !logged {
				e.log.Error("the table that an earlier agent left in a pod cannot be removed, and denies what it denied; it is tried again", "err", err)
			}
			if e.stale[key] = true; err != nil {
				continue
			}
		}
		delete(e.stale, key)
	}
}

func clearPod(ctx context.Context, g attach.Guarded, mine []state.Table) error {
	return inPod(g, func(at *kernel.Conn) error {
		_, _, opened := at.Bar(ctx, nil)
		return errors.Join(at.RemoveTables(ctx, mine), opened)
	})
}

// inPod calls f with the namespace of an interface's pod, unless that is gone.
func inPod(g attach.Guarded, f func(at *kernel.Conn) error) error {
	ns, err := netns.Open(g.Path)
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
