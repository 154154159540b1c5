// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net/http"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// machinesWhole has the agent compare its virtual machines with their pods: nobody else may open its ledger.
func machinesWhole(ctx context.Context, n Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var report model.MachineReport
	err := ask(ctx, n.Config.Socket, http.MethodPost, adminapi.RouteCheckMachines, &report)
	switch {
	case err != nil && away(err):
		return skip("not checked: no agent answers at %s", n.Config.Socket)
	case err != nil:
		return warn(hintOf(err), "not checked: %s", bare(err))
	}
	var out []Finding
	if report.Unreadable != "" {
		out = warn("a record of another version is left alone; weft vm phase1 writes the others anew", "%s",
			report.Unreadable)
	}
	for _, p := range report.Problems {
		out = append(out, machineProblem(p)...)
	}
	if len(out) == 0 && report.Machines == 0 {
		return []Finding{{Level: Good, Says: "there are none"}}
	}
	return out
}

func machineProblem(p model.MachineProblem) []Finding {
	switch {
	case p.Unfinished:
		return bad("the agent takes back what it can, now and then; weft vm phase1 goes on with it", "machine %s: %s", p.Machine,
			p.Says)
	case p.Gone:
		return warn("the agent forgets it when it starts, or after the pod's DEL", "machine %s: %s", p.Machine, p.Says)
	}
	return bad("", "machine %s: %s", p.Machine, p.Says)
}
