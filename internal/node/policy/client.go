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

// Prefix is the path prefix of an Enforcer's routes.
const Prefix = "/policy"

// Request requests a route of an agent from its admin socket.
func Request(ctx context.Context, socket, what string, query url.Values, into any) error {
	q := NewRequest(what, query)
	q.Socket = socket
	return q.Do(ctx, into)
}

// NewRequest returns the request of a route, for the agent of another node.
func NewRequest(what string, query url.Values) adminapi.Request {
	q := request("", http.MethodGet, what)
	q.Query = query
	return q
}

// RequestVerdicts asks the agent which connections policies allow. It is most precise for pods of its own node: only
// there the index knows that the node itself can always reach them.
func RequestVerdicts(ctx context.Context, socket string, queries []policy.Query) ([]bool, error) {
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
		Server: "agent that enforces network policies",
		Hint:   "start the agent, enable policies (policy.mode), or set its --state-dir",
	}
}
