// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/attach"
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

func clearPod(ctx context.Context, g attach.Guarded, mine []state.Table) error {
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
		_, _, opened := conn.Bar(ctx, nil)
		err = errors.Join(conn.RemoveTables(ctx, mine), opened, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", g.Pod, err)
	}
	return nil
}
