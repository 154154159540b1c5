// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
)

// explainFlow explains the connection of a flow as it would be made now, in lines of text: the hops at which policies
// decide, the way between the nodes, and each fault.
func explainFlow(ctx context.Context, c agents.Cluster, r flow.Record) ([]string, error) {
	q := query{from: endName(r.From), to: endName(r.To), network: r.From.Network}
	if q.network == "" {
		q.network = r.To.Network
	}
	switch r.Protocol {
	case "tcp", "udp", "sctp":
		q.protocol, q.port = model.Protocol(strings.ToUpper(r.Protocol)), r.To.Port
	}
	reports, err := newExplanation(c).explain(ctx, q)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, report := range reports {
		if report.From.Addr.Is4() != r.From.Addr.Is4() {
			continue
		}
		out = append(out, summary(report)...)
	}
	return out, nil
}

// endName returns the name of a pod, of which an address may be another one's by now, or else the address.
func endName(e flow.Endpoint) string {
	switch e.Kind {
	case flow.PodEnd:
		return e.Name
	case flow.VMEnd:
		return e.Pod
	}
	return e.Addr.String()
}

// summary returns what a report says, without the hops that are ok but those of policies and of tunnels.
func summary(r explain.Report) (out []string) {
	for _, h := range r.Forward {
		line := h.ID + " at " + h.Where + ": " + string(h.State)
		switch {
		case h.State != explain.OK:
			line += ", " + h.Cause
		case h.ID == "egress" || h.ID == "ingress" || h.ID == "route" || h.ID == "tunnel" && len(h.Evidence) > 0:
			line += ", " + strings.Join(h.Evidence, ", ")
		default:
			continue
		}
		out = append(out, strings.TrimSuffix(line, ", "))
	}
	for _, h := range r.Back {
		if h.State != explain.OK {
			out = append(out, "back, "+h.ID+" at "+h.Where+": "+string(h.State)+", "+h.Cause)
		}
	}
	return out
}
