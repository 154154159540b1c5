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

// maxRequest bounds what is read of a request, in bytes.
const maxRequest = 1 << 20

// The names under which requests are counted and timed, as CNI's verbs are.
const (
	VerbStart = "vm-start"
	VerbStop  = "vm-stop"
	VerbList  = "vm-list"
)

// verb does what is asked in a pod's namespace, nil where none came along.
type verb func(ctx context.Context, ns *netns.NS, words []byte) ([]byte, error)

// Routes are what root asks about machines.
func (m *Machines) Routes() adminapi.Routes {
	return adminapi.Routes{
		"POST " + host.RouteStart: m.route(VerbStart, m.Start),
		"POST " + host.RouteStop:  m.route(VerbStop, m.Stop),
		"POST " + host.RouteList:  m.route(VerbList, m.List),
		"POST " + adminapi.RouteCheckMachines: func(r *http.Request) (any, error) {
			return m.Check(r.Context()), nil
		},
	}
}

func (m *Machines) route(name string, do verb) func(*http.Request) (any, error) {
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

func (m *Machines) inNamespace(r *http.Request, do verb) ([]byte, error) {
	words, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return nil, model.Faultf(model.CodeDecode, "", "request: %w", err)
	}
	ask, err := parse(words)
	if err != nil {
		return nil, err
	}
	ns, err := adminapi.Namespace(r, ask.Netns)
	if err != nil {
		return nil, err
	}
	if ns == nil {
		return do(r.Context(), nil, words)
	}
	defer func() { _ = ns.Close() }()
	if err := m.foreign(ns); err != nil {
		return nil, model.Faultf(model.CodeInvalidNetns, "", "namespace %q: %w", ask.Netns, err)
	}
	return do(r.Context(), ns, words)
}

// foreign refuses a namespace of the node itself.
func (m *Machines) foreign(ns *netns.NS) error {
	id, err := ns.ID()
	if err != nil {
		return err
	}
	for _, own := range m.cfg.Own {
		nodes, err := own.ID()
		if err != nil {
			return err
		}
		if nodes == id {
			return errOfNode
		}
	}
	return nil
}

var errOfNode = errors.New("this is the network namespace of the node itself")
