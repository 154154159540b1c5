// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weft-net/weft/internal/node/adminapi"
)

// AskMachines asks an agent for the attachments of machines on its node.
func AskMachines(ctx context.Context, socket string) ([]Attachment, error) {
	var all []Attachment
	err := ask(ctx, socket, http.MethodGet, "machines", nil, &all)
	return all, err
}

// SayHere tells an agent that a machine runs on its node, in the pod; an empty pod is the only one that the machine has
// there.
func SayHere(ctx context.Context, socket, namespace, name, pod string) error {
	var done struct{}
	return ask(ctx, socket, http.MethodPost, "here", url.Values{"namespace": {namespace}, "name": {name}, "pod": {pod}},
		&done)
}

func ask(ctx context.Context, socket, method, what string, query url.Values, into any) error {
	return adminapi.Request{
		Socket: socket, Method: method, Path: Prefix + "/" + what, Query: query,
		Server: "agent that follows machines",
		Hint:   "start the agent, number pods from pools (network.pools), or give its --state-dir",
	}.Do(ctx, into)
}
