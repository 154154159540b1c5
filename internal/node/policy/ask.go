// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/weft-net/weft/internal/node/inquiry"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Socket is the name of the socket in the agent's state directory.
const Socket = "policy.sock"

// Ask asks the agent whose socket it is.
func Ask(ctx context.Context, socket, what string, query url.Values, into any) error {
	q := question(socket, http.MethodGet, what)
	q.Query = query
	return q.Ask(ctx, into)
}

// AskVerdicts asks it which connections policies allow. It answers best about those to pods of its own node: only there is
// known that the node itself always reaches them.
func AskVerdicts(ctx context.Context, socket string, queries []policy.Query) ([]bool, error) {
	q := question(socket, http.MethodPost, "verdicts")
	q.Body = queries
	var out []bool
	if err := q.Ask(ctx, &out); err != nil {
		return nil, err
	}
	if len(out) != len(queries) {
		return nil, fmt.Errorf("%s: %d answers to %d queries", socket, len(out), len(queries))
	}
	return out, nil
}

func question(socket, method, what string) inquiry.Question {
	return inquiry.Question{
		Socket: socket, Method: method, What: what,
		Who: "agent that obeys network policies", Hint: "start the agent, have it obey policies (policy.mode), or give its --state-dir",
	}
}
