// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

const (
	// checkLimit is how long the agent may take for all of its attachments.
	checkLimit = 40 * time.Second
	// mostDrifted bounds the attachments that are named.
	mostDrifted = 20
)

// Ask is the node as its agent runs, with the flags that were set over its file; fallback where no agent answers at its
// socket.
func Ask(ctx context.Context, fallback config.Config, source string) Node {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	n := Node{Config: fallback, Source: "no agent answers: looked at by " + source}
	var b json.RawMessage
	err := ask(ctx, fallback.Socket, http.MethodGet, adminapi.RouteSettings, &b)
	if err == nil {
		own := fallback
		if err = json.Unmarshal(b, &own); err == nil {
			n.Config, n.Source = own, "as the agent at "+fallback.Socket+" runs, which was found by "+source
		}
	}
	if err != nil && !away(err) {
		n.Source = "the agent does not say how it runs (" + bare(err) + "): looked at by " + source
	}
	n.NodeRoot = n.Config.Install.HostRoot
	return n
}

// settingsUsed says what the other looks go by.
func settingsUsed(_ context.Context, n Node) []Finding {
	if n.Source == "" {
		return skip("not said where the settings are from")
	}
	return []Finding{{Level: Good, Says: n.Source}}
}

// away reports whether there is no agent at a socket.
func away(err error) bool {
	return errors.Is(err, adminapi.ErrNoServer) || errors.Is(err, context.DeadlineExceeded)
}

// ask asks the agent whose socket for CNI calls is given, on its other one.
func ask(ctx context.Context, socket, method, route string, into any) error {
	return adminapi.Request{
		Socket: adminapi.Path(socket), Method: method, Path: route, Timeout: checkLimit, Server: "agent",
	}.Do(ctx, into)
}

// attachmentsWhole has the agent check all attachments: nobody else may open its ledger.
func attachmentsWhole(ctx context.Context, n Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var report model.CheckReport
	err := ask(ctx, n.Config.Socket, http.MethodPost, adminapi.RouteCheck, &report)
	switch {
	case err != nil && away(err):
		return skip("not checked: no agent answers at %s", n.Config.Socket)
	case err != nil:
		return warn(hintOf(err), "not checked: %s", bare(err))
	}
	var out []Finding
	for i, p := range report.Problems {
		if i == mostDrifted {
			out = append(out, bad("", "%d further attachments differ", len(report.Problems)-i)...)
			break
		}
		name := p.Attachment
		if p.Pod != "" {
			name = p.Pod + " (" + p.Attachment + ")"
		}
		if p.Gone {
			out = append(out, warn("the runtime's DEL or a GC detaches it", "%s: its network namespace has gone", name)...)
			continue
		}
		out = append(
			out,
			bad(
				"the agent's log says whether it repairs that, and what it leaves as the pod's own; delete the pod to have it as planned", "%s: %s", name, strings.TrimSpace(p.Says),
			)...,
		)
	}
	if report.Unchecked > 0 {
		out = append(
			out,
			skip("%d of %d attachments were not checked: they are being attached or detached, or time was up", report.Unchecked,
				report.Attachments)...,
		)
	}
	if len(out) == 0 && report.Attachments == 0 {
		return []Finding{{Level: Good, Says: "there are none"}}
	}
	return out
}
