// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/vm/host"
)

// maxRequest is the maximum size of a request, in bytes.
const maxRequest = 1 << 20

// The verbs, as metrics have them.
const (
	VerbStart = "vm-start"
	VerbStop  = "vm-stop"
	VerbList  = "vm-list"
)

// verb handles a request in a pod's namespace; ns is nil if the request has none.
type verb func(ctx context.Context, ns *netns.NS, body []byte) ([]byte, error)

// Routes returns the handlers of the agent's socket for VMs.
func (m *Registry) Routes() adminapi.Routes {
	return adminapi.Routes{
		"POST " + host.RouteStart: m.route(VerbStart, m.Start),
		"POST " + host.RouteStop:  m.route(VerbStop, m.Stop),
		"POST " + host.RouteList:  m.route(VerbList, m.List),
		"POST " + adminapi.RouteCheckVMs: func(r *http.Request) (any, error) {
			return m.Check(r.Context()), nil
		},
	}
}

func (m *Registry) route(name string, do verb) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		start := m.cfg.Now()
		out, err := m.inNamespace(r, do)
		took := m.cfg.Now().Sub(start)
		if m.cfg.Called != nil {
			m.cfg.Called(name, err, took)
		}
		if err != nil {
			m.cfg.Log.Warn("call failed", "verb", name, "took", took, "err", err)
			return nil, err
		}
		return json.RawMessage(out), nil
	}
}

func (m *Registry) inNamespace(r *http.Request, do verb) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "request: %w", err)
	}
	req, err := parseRequest(body)
	if err != nil {
		return nil, err
	}
	ns, err := adminapi.Namespace(r, req.Netns)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		return do(r.Context(), nil, body)
	}
	defer func() { _ = ns.Close() }()
	if err := m.checkNotNode(ns); err != nil {
		return nil, model.Errorf(model.CodeInvalidNetns, "", "namespace %q: %w", req.Netns, err)
	}
	return do(r.Context(), ns, body)
}

// checkNotNode returns an error for a namespace of the node itself.
func (m *Registry) checkNotNode(ns *netns.NS) error {
	id, err := ns.ID()
	if err != nil {
		return err
	}
	for _, own := range m.cfg.Own {
		ownID, err := own.ID()
		if err != nil {
			return err
		}
		if ownID == id {
			return errNodeNamespace
		}
	}
	return nil
}

var errNodeNamespace = errors.New("this is the network namespace of the node itself")
