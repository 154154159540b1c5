// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Check compares all machines with their pods. It changes nothing.
func (m *Machines) Check(ctx context.Context) model.MachineReport {
	all, err := m.local.List(ctx)
	report := model.MachineReport{Machines: len(all)}
	if err != nil {
		report.Unreadable = err.Error()
	}
	for _, r := range all {
		if problem, wrong := check(ctx, r); wrong {
			report.Problems = append(report.Problems, problem)
		}
	}
	return report
}

// check reports what is wrong with a machine.
func check(ctx context.Context, r phase1.Record) (p model.MachineProblem, wrong bool) {
	p.Machine = r.Machine
	for _, network := range r.Networks {
		if network.State != phase1.Finished {
			p.Unfinished, p.Says = true, fmt.Sprintf("network %q is %s", network.Interface.Name, network.State)
			return p, true
		}
	}
	ns, err := netns.Open(r.Netns)
	if err != nil {
		p.Gone, p.Says = true, fmt.Sprintf("its pod has gone: %v", err)
		return p, true
	}
	defer func() { _ = ns.Close() }()
	if name, err := phase1.Identity(ns); err != nil || name != r.Namespace {
		p.Gone, p.Says = true, r.Netns+" is another pod's by now"
		return p, true
	}
	if err := r.Still(ctx, ns); err != nil {
		p.Says = err.Error()
		return p, true
	}
	return p, false
}
