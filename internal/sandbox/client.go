// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Client is a client of the server of a state directory.
type Client struct {
	dir  string
	http *http.Client
}

// ErrNoServer is wrapped by errors about a state directory without a running server.
var ErrNoServer = errors.New("no sandbox runtime is running")

// NewClient returns a client, which connects for each request.
func NewClient(stateDir string) *Client {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		dir = stateDir
	}
	c := &Client{dir: dir}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path, done, err := socketPath(c.dir)
			if err != nil {
				return nil, err
			}
			defer done()
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
	return c
}

func (c *Client) do(ctx context.Context, method, path string, q url.Values, body []byte, into any) error {
	u := url.URL{Scheme: "http", Host: "sandbox", Path: path, RawQuery: q.Encode()}
	var resp *http.Response
	for range 5 {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err = c.http.Do(req)
		if err == nil {
			break
		}
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
			time.Sleep(10 * time.Millisecond) // the server is shutting down; every request is idempotent
			continue
		}
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			return model.Errorf(model.CodeIO, "`weft sandbox run` or `weft sandbox serve` starts one",
				"%w for the state directory %s", ErrNoServer, c.dir)
		}
		if errors.Is(err, syscall.ENOTDIR) {
			return model.Errorf(model.CodeIO, "choose another one with --state-dir",
				"state directory %s is not a directory", c.dir)
		}
		return fmt.Errorf("sandbox runtime of %s: %w", c.dir, err)
	}
	if resp == nil {
		return fmt.Errorf("sandbox runtime of %s: no response; it may be shutting down", c.dir)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("sandbox runtime of %s: %w", c.dir, err)
	}
	if resp.StatusCode != http.StatusOK {
		var e apiError
		if json.Unmarshal(b, &e) != nil || e.Msg == "" {
			return fmt.Errorf("sandbox runtime of %s: %s: %.200s", c.dir, resp.Status, b)
		}
		return &model.Error{Code: e.Code, Msg: e.Msg, Hint: e.Hint}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("sandbox runtime of %s: %w", c.dir, err)
	}
	return nil
}

// Status returns the state of the server.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	return st, c.do(ctx, http.MethodGet, "/v1/status", nil, nil, &st)
}

// List returns all pods.
func (c *Client) List(ctx context.Context) ([]Pod, error) {
	var out []Pod
	return out, c.do(ctx, http.MethodGet, "/v1/pods", nil, nil, &out)
}

// Get returns one pod.
func (c *Client) Get(ctx context.Context, namespace, name string) (Detail, error) {
	var d Detail
	return d, c.do(ctx, http.MethodGet, "/v1/pods/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), nil, nil, &d)
}

// Apply applies a manifest: its pods will run. Messages refer to the manifest by source.
func (c *Client) Apply(ctx context.Context, manifest []byte, source string) (ApplyResult, error) {
	var out ApplyResult
	return out, c.do(ctx, http.MethodPost, "/v1/pods", url.Values{"source": {source}}, manifest, &out)
}

// Stop deletes a pod; a nil grace means the pod's own grace period. It does not wait.
func (c *Client) Stop(ctx context.Context, namespace, name string, grace *time.Duration, force bool) error {
	q := url.Values{}
	if grace != nil {
		q.Set("grace", grace.String())
	}
	if force {
		q.Set("force", "true")
	}
	return c.do(ctx, http.MethodDelete, "/v1/pods/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), q, nil, nil)
}

// Watch polls a pod until done returns true or an error, or ctx ends. It passes nil for a pod that does not exist.
func (c *Client) Watch(ctx context.Context, namespace, name string, done func(*Detail) (bool, error)) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		d, err := c.Get(ctx, namespace, name)
		var f *model.Error
		p := &d
		switch {
		case errors.As(err, &f) && f.Code == model.CodeUnknownContainer:
			p = nil
		case err != nil:
			return err
		}
		if stop, err := done(p); stop || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
