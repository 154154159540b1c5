// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weft-net/weft/internal/inquiry"
)

// Socket is the name of the socket in the agent's state directory.
const Socket = "policy.sock"

// Ask asks the agent whose socket it is.
func Ask(ctx context.Context, socket, what string, query url.Values, into any) error {
	return inquiry.Question{
		Socket: socket, Method: http.MethodGet, What: what, Query: query,
		Who: "agent that obeys network policies", Hint: "start the agent, have it obey policies (policy.mode), or give its --state-dir",
	}.Ask(ctx, into)
}
