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

// maxAnswer limits the size of a response, in bytes.
const maxAnswer = 64 << 20

// Request is a request to a server's socket.
type Request struct {
	// Socket is the path of the socket. With Dial it only names the server in errors.
	Socket string
	// Dial, unless it is nil, connects to the server.
	Dial func(context.Context) (net.Conn, error)
	// Token, unless it is empty, is sent as a bearer token.
	Token string
	// Method and Path are the route ("GET", "/policy/show"), Query its parameters.
	Method string
	Path   string
	Query  url.Values
	// Body, unless it is nil, is sent as JSON. Timeout limits the wait for the response; 0 is 10 s.
	Body    any
	Timeout time.Duration
	// NS, unless it is nil, is sent with the request.
	NS *netns.NS
	// Server names the server in errors ("agent that enforces network policies"); Hint is for when there is none.
	Server string
	Hint   string
}

// Do sends the request and decodes the response into a value, unless that is nil. The error is ErrNoServer if no
// process listens on the socket or the server does not have the route.
func (q Request) Do(ctx context.Context, into any) error {
	timeout := cmp.Or(q.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := q.send(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := q.refused(answer); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	return nil
}

// send sends the request. The caller closes the body of the response.
func (q Request) send(ctx context.Context) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if q.Dial != nil {
				return q.Dial(ctx)
			}
			return dial(ctx, q.Socket, q.NS)
		},
	}}
	var body io.Reader
	if q.Body != nil {
		b, err := json.Marshal(q.Body)
		if err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, q.Method, "http://agent"+q.Path+"?"+q.Query.Encode(), body)
	if err != nil {
		return nil, err
	}
	if q.Token != "" {
		r.Header.Set("Authorization", "Bearer "+q.Token)
	}
	if q.Timeout > 0 {
		r.Header.Set(timeoutHeader, q.Timeout.String())
	}
	answer, err := client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, q.noServer()
	case err != nil:
		if u := (*url.Error)(nil); errors.As(err, &u) { // its address says nothing
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w", q.Socket, err)
	}
	return answer, nil
}

// refused returns the error of a response that has one.
func (q Request) refused(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusNotFound: // the agent is not configured to do this
		return q.noServer()
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", q.Socket, err)
	}
	var refused Refusal
	if json.Unmarshal(b, &refused) != nil || refused.Message == "" {
		return fmt.Errorf("%s: %s", q.Socket, answer.Status)
	}
	return refused.error()
}

// ErrNoServer reports that no server on the socket handles the request.
var ErrNoServer = errors.New("no server on the socket")

func (q Request) noServer() error {
	return model.Errorf(model.CodeIO, q.Hint, "%w", noServerError{q.Server, q.Socket})
}

// noServerError names the missing server and its socket.
type noServerError struct{ server, socket string }

func (e noServerError) Error() string { return fmt.Sprintf("no %s answers at %s", e.server, e.socket) }

func (e noServerError) Is(target error) bool { return target == ErrNoServer }
