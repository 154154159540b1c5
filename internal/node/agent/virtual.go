// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/node/cniserver"
	"github.com/weft-net/weft/internal/vm/node"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// virtual makes the part that keeps virtual machines in pods.
func (a *agent) virtual(boot string) *node.Machines {
	admit := func(ctx context.Context, all ...attach.Guarded) error {
		if a.policy == nil {
			return nil
		}
		return a.policy.Admit(ctx, all...)
	}
	m := node.New(node.Config{
		Admit:  admit,
		Phase1: phase1.Config{Dir: filepath.Join(a.cfg.StateDir, "vm"), Boot: boot, Step: a.cfg.Step},
		Memory: a.ledger, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After, Own: a.own, Called: a.called,
		Hold: func(ctx context.Context, container string) (func(), error) { return a.attacher.Hold(ctx, container) },
	})
	if a.metrics != nil {
		a.metrics.Gauge("weft_vm_machines", "Virtual machines whose network is in pods of this node.", func() float64 {
			n, _ := m.Count()
			return float64(n)
		})
		a.metrics.Gauge("weft_vm_networks", "Networks that virtual machines have in pods of this node.", func() float64 {
			_, n := m.Count()
			return float64(n)
		})
	}
	return m
}

// verbs are what programs of the version before this one ask on the socket for CNI calls; those of this one ask on the other
// (admin), and the next version need not answer here.
func (a *agent) verbs() map[string]cniserver.Verb {
	return map[string]cniserver.Verb{
		node.VerbStart: a.machines.Start, node.VerbStop: a.machines.Stop, node.VerbList: a.machines.List,
	}
}
