// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// engineTime bounds a request to dockerd.
const engineTime = 10 * time.Second

// errNotFound is the error of an object that dockerd does not have.
var errNotFound = errors.New("not found")

// engine reads dockerd's API (https://docs.docker.com/reference/api/engine), without a version: each dockerd answers in
// its own, and the fields that are read are in all of them.
type engine struct {
	socket string
	client *http.Client
}

func newEngine(host string) (*engine, error) {
	socket, ok := strings.CutPrefix(host, "unix://")
	if !ok || !strings.HasPrefix(socket, "/") {
		return nil, fmt.Errorf("docker host %q: not unix:///PATH", host)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &engine{socket: socket, client: &http.Client{
		Timeout: engineTime, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}, nil
}

// container is a container of dockerd.
type container struct {
	ID, Name string
	Labels   map[string]string
}

func (e *engine) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, nil)
	if err != nil {
		return fmt.Errorf("dockerd: %w", err)
	}
	answer, err := e.client.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("dockerd at %s: %w", e.socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	const most = 64 << 20
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	switch {
	case err != nil:
		return fmt.Errorf("dockerd at %s: %w", e.socket, err)
	case answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("dockerd at %s: %s: %w", e.socket, path, errNotFound)
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("dockerd at %s: %s: %s: %.200s", e.socket, path, answer.Status, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("dockerd at %s: %s: %w", e.socket, path, err)
	}
	return nil
}

// before28 reports whether dockerd is known to be older than version 28.
func (e *engine) before28(ctx context.Context) bool {
	var answer struct {
		APIVersion string `json:"ApiVersion"`
	}
	if err := e.get(ctx, "/version", &answer); err != nil {
		return false
	}
	const of28 = 48 // API 1.48
	minor, err := strconv.Atoi(strings.TrimPrefix(answer.APIVersion, "1."))
	return err == nil && minor < of28
}

// endpoints returns the containers of a network's endpoints, by endpoint ID. An endpoint that is about to get a container
// has a name in its place, which begins with ep-.
func (e *engine) endpoints(ctx context.Context, network string) (map[string]string, error) {
	var answer struct {
		Containers map[string]struct{ EndpointID string }
	}
	if err := e.get(ctx, "/networks/"+url.PathEscape(network), &answer); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(answer.Containers))
	for id, c := range answer.Containers {
		out[c.EndpointID] = id
	}
	return out, nil
}

// container returns the container of an ID, running or not. It does not wait for a container that is starting, as the
// request for one container would.
func (e *engine) container(ctx context.Context, id string) (container, error) {
	filters, err := json.Marshal(map[string][]string{"id": {id}})
	if err != nil {
		return container{}, fmt.Errorf("dockerd: %w", err)
	}
	var answer []struct {
		ID     string `json:"Id"`
		Names  []string
		Labels map[string]string
	}
	if err := e.get(ctx, "/containers/json?all=true&filters="+url.QueryEscape(string(filters)), &answer); err != nil {
		return container{}, err
	}
	for _, c := range answer {
		if c.ID == id {
			name := ""
			if len(c.Names) > 0 {
				name = strings.TrimPrefix(c.Names[0], "/")
			}
			return container{ID: c.ID, Name: name, Labels: c.Labels}, nil
		}
	}
	return container{}, fmt.Errorf("dockerd at %s: container %s: %w", e.socket, id, errNotFound)
}
