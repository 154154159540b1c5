// SPDX-License-Identifier: Apache-2.0

package policy

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

// Socket is the name of the socket in the agent's state directory.
const Socket = "policy.sock"

// mostAnswer bounds what is read of an answer.
const mostAnswer = 64 << 20

// Ask asks the agent whose socket it is.
func Ask(ctx context.Context, socket, what string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/"+what+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return model.Faultf(model.CodeIO, "start the agent, have it obey policies (policy.mode), or give its --state-dir",
			"no agent that obeys network policies answers at %s", socket)
	case err != nil:
		return fmt.Errorf("%s: %w", socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, mostAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	if answer.StatusCode != http.StatusOK {
		var no Refusal
		if err := json.Unmarshal(b, &no); err != nil {
			return fmt.Errorf("%s: %s", socket, answer.Status)
		}
		return model.Faultf(no.Code, no.Hint, "%s", no.Message)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", socket, err)
	}
	return nil
}
