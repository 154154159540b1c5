// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"net/http"
	"net/url"

	"github.com/weft-net/weft/internal/node/adminapi"
)

// ListAttachments requests the attachments of VMs from an agent.
func ListAttachments(ctx context.Context, socket string) ([]Attachment, error) {
	var all []Attachment
	err := ask(ctx, socket, http.MethodGet, "machines", nil, &all)
	return all, err
}

// ReportHere reports to an agent that a VM runs on its node, in the pod; the name may be empty if the VM has only one pod
// there.
func ReportHere(ctx context.Context, socket, namespace, name, pod string) error {
	var done struct{}
	return ask(ctx, socket, http.MethodPost, "here", url.Values{"namespace": {namespace}, "name": {name}, "pod": {pod}},
		&done)
}

func ask(ctx context.Context, socket, method, what string, query url.Values, into any) error {
	return adminapi.Request{
		Socket: socket, Method: method, Path: Prefix + "/" + what, Query: query,
		Server: "agent that serves VM migrations",
		Hint:   "start the agent, allocate pod addresses from pools (network.pools), or set its --state-dir",
	}.Do(ctx, into)
}
