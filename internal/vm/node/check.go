// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Check compares all VMs with their pods. It changes nothing.
func (m *Registry) Check(ctx context.Context) model.VMReport {
	all, err := m.local.List(ctx)
	report := model.VMReport{VMs: len(all)}
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

// check reports whether something is wrong with a VM.
func check(ctx context.Context, r phase1.Record) (p model.VMProblem, wrong bool) {
	p.VM = r.VM
	for _, network := range r.Networks {
		if network.State != phase1.Finished {
			p.Unfinished, p.Message = true, fmt.Sprintf("network %q is %s", network.Interface.Name, network.State)
			return p, true
		}
	}
	ns, err := netns.Open(r.Netns)
	if err != nil {
		p.Gone, p.Message = true, fmt.Sprintf("its pod is gone: %v", err)
		return p, true
	}
	defer func() { _ = ns.Close() }()
	if name, err := phase1.Identity(ns); err != nil || name != r.Namespace {
		p.Gone, p.Message = true, r.Netns+" belongs to another pod now"
		return p, true
	}
	if err := r.Check(ctx, ns); err != nil {
		p.Message = err.Error()
		return p, true
	}
	return p, false
}
