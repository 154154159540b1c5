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
	// checkTimeout is the timeout of the agent's CHECK of all attachments.
	checkTimeout = 40 * time.Second
	// maxDrifted is how many attachments are listed.
	maxDrifted = 20
)

// FromAgent returns the node with the settings of its running agent, flags included, or with fallback if no agent answers
// at its socket.
func FromAgent(ctx context.Context, fallback config.Config, source string) Node {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n := Node{Config: fallback, Source: "from " + source + ": no agent answers"}
	var b json.RawMessage
	err := callAgent(ctx, fallback.Socket, http.MethodGet, adminapi.RouteSettings, &b)
	if err == nil {
		own := fallback
		if err = json.Unmarshal(b, &own); err == nil {
			n.Config, n.AgentAnswers = own, true
			n.Source = "from the agent at " + fallback.Socket + " (socket from " + source + ")"
		}
	}
	n.AgentHangs = errors.Is(err, context.DeadlineExceeded)
	if err != nil && !noAgent(err) {
		n.Source = "from " + source + ": the agent does not report its settings: " + message(err)
	}
	n.NodeRoot = n.Config.Install.HostRoot
	return n
}

// settingsSource reports where the settings are from.
func settingsSource(_ context.Context, n Node) []Finding {
	if n.Source == "" {
		return skip("the source of the settings is not known")
	}
	return []Finding{{Level: Good, Message: n.Source}}
}

// unknown skips a check of something that only the agent knows. The reason is used if the agent answers.
func (n Node) unknown(reason string) []Finding {
	if !n.AgentAnswers {
		reason = "not checked: no agent answers at " + n.Config.Socket
	}
	return skip("%s", reason)
}

// noAgent reports whether the error means that no agent answers at the socket.
func noAgent(err error) bool {
	return errors.Is(err, adminapi.ErrNoServer) || errors.Is(err, context.DeadlineExceeded)
}

// callAgent calls the agent's admin API; socket is its socket for CNI calls.
func callAgent(ctx context.Context, socket, method, route string, into any) error {
	return adminapi.Request{
		Socket: adminapi.Path(socket), Method: method, Path: route, Timeout: checkTimeout, Server: "agent",
	}.Do(ctx, into)
}

// haveAgentCheck has the agent make a check that only it can make. Unless ok, out reports why there is no report.
func (n Node) haveAgentCheck(ctx context.Context, route string, report any) (out []Finding, ok bool) {
	if n.AgentHangs {
		return skip("not checked: the agent does not answer at %s", n.Config.Socket), false
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := callAgent(ctx, n.Config.Socket, http.MethodPost, route, report)
	switch {
	case err != nil && noAgent(err):
		return skip("not checked: no agent answers at %s", n.Config.Socket), false
	case err != nil:
		return warn(hintOf(err), "not checked: %s", message(err)), false
	}
	return nil, true
}

// attachmentsIntact has the agent check all attachments, because only the agent may open its ledger.
func attachmentsIntact(ctx context.Context, n Node) []Finding {
	var report model.CheckReport
	if out, ok := n.haveAgentCheck(ctx, adminapi.RouteCheck, &report); !ok {
		return out
	}
	var out []Finding
	for i, p := range report.Problems {
		if i == maxDrifted {
			out = append(out, bad("", "%d further attachments differ", len(report.Problems)-i)...)
			break
		}
		name := p.Attachment
		if p.Pod != "" {
			name = p.Pod + " (" + p.Attachment + ")"
		}
		if p.Gone {
			out = append(out, warn("the runtime's DEL or a GC deletes it", "%s: its network namespace is gone", name)...)
			continue
		}
		out = append(
			out,
			bad(
				"see the agent's log for repairs and for changes by the pod that it leaves; or re-create the pod", "%s: %s", name, strings.TrimSpace(p.Message),
			)...,
		)
	}
	if report.Unchecked > 0 {
		out = append(
			out,
			skip("%d of %d attachments were not checked: ADD or DEL is in progress, or the time was up", report.Unchecked,
				report.Attachments)...,
		)
	}
	if len(out) == 0 && report.Attachments == 0 {
		return []Finding{{Level: Good, Message: "no attachments"}}
	}
	return out
}
