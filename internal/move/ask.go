// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
)

// mostAnswer bounds what is read of an answer.
const mostAnswer = 16 << 20

// AskMachines asks an agent for the attachments of machines on its node.
func AskMachines(ctx context.Context, socket string) ([]Attachment, error) {
	var all []Attachment
	return all, ask(ctx, socket, http.MethodGet, "machines", &all)
}

// SayHere tells an agent that a machine runs on its node.
func SayHere(ctx context.Context, socket, namespace, name string) error {
	q := url.Values{"namespace": {namespace}, "name": {name}}
	return ask(ctx, socket, http.MethodPost, "here?"+q.Encode(), nil)
}

func ask(ctx context.Context, socket, method, what string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, method, "http://agent/"+what, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return model.Faultf(model.CodeIO, "start the agent, number pods from pools (network.pools), or give its --state-dir",
			"no agent that follows machines answers at %s", socket)
	case err != nil:
		return fmt.Errorf("%s: %w", socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	if answer.StatusCode != http.StatusOK {
		var no struct{ Error string }
		if json.Unmarshal(b, &no) != nil || no.Error == "" {
			no.Error = answer.Status
		}
		return model.Faultf(model.CodeUnknownContainer, "`weft vm moves` shows those that have one", "%s", no.Error)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(b, into)
}
