// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/plan/policy"
)

// Prefix is what an Enforcer's routes are under.
const Prefix = "/policy"

// Ask asks the agent whose socket for root (adminapi) it is.
func Ask(ctx context.Context, socket, what string, query url.Values, into any) error {
	q := request(socket, http.MethodGet, what)
	q.Query = query
	return q.Do(ctx, into)
}

// AskVerdicts asks it which connections policies allow. It answers best about those to pods of its own node: only there
// is known that the node itself always reaches them.
func AskVerdicts(ctx context.Context, socket string, queries []policy.Query) ([]bool, error) {
	q := request(socket, http.MethodPost, "verdicts")
	q.Body = queries
	var out []bool
	if err := q.Do(ctx, &out); err != nil {
		return nil, err
	}
	if len(out) != len(queries) {
		return nil, fmt.Errorf("%s: %d answers to %d queries", socket, len(out), len(queries))
	}
	return out, nil
}

func request(socket, method, what string) adminapi.Request {
	return adminapi.Request{
		Socket: socket, Method: method, Path: Prefix + "/" + what,
		Server: "agent that obeys network policies",
		Hint:   "start the agent, have it obey policies (policy.mode), or give its --state-dir",
	}
}
