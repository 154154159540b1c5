// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/nodestatus/collect"
	"github.com/weft-net/weft/internal/node/unrecorded"
)

// collector returns what collects the agent's state for weft status.
func (a *agent) collector() collect.Collector {
	c := collect.Collector{
		Node: a.cfg.Node, Version: a.cfg.Version,
		Ready:   func() error { return a.telemetry.servesPods(a.own.ledger) },
		Records: a.own.ledger.List, Lost: func() ([]unrecorded.Interface, error) { return unrecorded.Present(a.own.lost) },
		Check: a.attachments.inspector.CheckAll, CheckVMs: a.attachments.vms.Check,
		FastPath: a.fast.Status,
		Repairs:  a.telemetry.repairs.Load, Now: a.cfg.Now, After: a.cfg.After,
	}
	if a.attachments.mover != nil {
		c.Moving = a.attachments.mover.Attachments
	}
	if a.data.facts != nil {
		c.Mesh = a.overlay.Status
	}
	if a.enforcement.policy != nil {
		c.Policies = a.enforcement.policy
	}
	if a.blocks != nil {
		c.Pools = a.blocks.CountByPool
		if a.addresses.Pooled() {
			c.Addresses = a.addresses.Compare
		}
	}
	if a.cfg.Doctor != nil {
		c.Doctor = func(ctx context.Context) []nodestatus.Finding { return a.cfg.Doctor(ctx, settings(a.cfg)) }
	}
	return c
}
