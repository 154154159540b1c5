// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// vmsIntact has the agent compare its VMs with their pods, because only the agent may open its ledger.
func vmsIntact(ctx context.Context, n Node) []Finding {
	var report model.VMReport
	out, ok := n.haveAgentCheck(ctx, adminapi.RouteCheckVMs, &report)
	if !ok {
		return out
	}
	if report.Unreadable != "" {
		out = warn("the agent keeps records of another version; weft vm phase1 replaces the others", "%s",
			report.Unreadable)
	}
	for _, p := range report.Problems {
		out = append(out, vmFinding(p)...)
	}
	if len(out) == 0 && report.VMs == 0 {
		return []Finding{{Level: Good, Message: "no VMs"}}
	}
	return out
}

func vmFinding(p model.VMProblem) []Finding {
	switch {
	case p.Unfinished:
		return bad("run weft vm phase1 again; the agent retries the rollback", "VM %s: %s", p.VM, p.Message)
	case p.Gone:
		return warn("the agent removes the record after the pod's DEL, or when it restarts", "VM %s: %s", p.VM, p.Message)
	}
	return bad("", "VM %s: %s", p.VM, p.Message)
}
