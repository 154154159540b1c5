// SPDX-License-Identifier: Apache-2.0

package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 20

// Request is what is asked on a socket.
type Request struct {
	Socket string
	// Method and Path are the route ("GET", "/policy/show"), Query its parameters.
	Method string
	Path   string
	Query  url.Values
	// Body, unless it is nil, is sent as JSON. Timeout is how long the answer may take; 0 is 10 s.
	Body    any
	Timeout time.Duration
	// NS, unless it is nil, travels beside the request.
	NS *netns.NS
	// Server says who should be there ("agent that obeys network policies"), Hint what to do when there is none.
	Server string
	Hint   string
}

// Do asks; what is answered goes into a value, unless that is nil. Where nobody listens, or who does has no such route,
// the error is ErrNoServer.
func (q Request) Do(ctx context.Context, into any) error {
	timeout := cmp.Or(q.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx, q.Socket, q.NS)
		},
	}}
	var body io.Reader
	if q.Body != nil {
		b, err := json.Marshal(q.Body)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, "http://agent"+q.Path+"?"+q.Query.Encode(), body)
	if err != nil {
		return err
	}
	if q.Timeout > 0 {
		r.Header.Set(timeoutHeader, timeout.String())
	}
	answer, err := client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return q.noServer()
	case err != nil:
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && answer.StatusCode == http.StatusNotFound { // an agent that is not told to do this
		return q.noServer()
	}
	if err == nil && answer.StatusCode != http.StatusOK {
		var no Refusal
		if json.Unmarshal(b, &no) != nil || no.Message == "" {
			return fmt.Errorf("%s: %s", q.Socket, answer.Status)
		}
		return model.Faultf(no.Code, no.Hint, "%s", no.Message)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	return nil
}

// ErrNoServer is what an error is when nobody answers such requests at the socket.
var ErrNoServer = errors.New("nobody answers")

func (q Request) noServer() error {
	return model.Faultf(model.CodeIO, q.Hint, "%w", noServerError{q.Server, q.Socket})
}

// noServerError says who does not listen, and where.
type noServerError struct{ server, socket string }

func (e noServerError) Error() string { return fmt.Sprintf("no %s answers at %s", e.server, e.socket) }

func (e noServerError) Is(target error) bool { return target == ErrNoServer }
