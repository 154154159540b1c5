// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// The agent's routes for machines, all of them POST.
const (
	RouteStart = "/machines/start"
	RouteStop  = "/machines/stop"
	RouteList  = "/machines/list"
)

// Ask is what the agent is asked. The pod's namespace travels beside it.
type Ask struct {
	// Netns is the path by which the caller has opened the namespace, ID and Root are Pod's.
	Netns string `json:"netns,omitempty"`
	ID    string `json:"id,omitempty"`
	Root  string `json:"root,omitempty"`
	// Machine is Stop's key, Input is Start's.
	Machine string      `json:"machine,omitempty"`
	Input   *plan.Input `json:"input,omitempty"`
}

// remote asks the agent.
type remote struct{ socket string }

func (r remote) Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error) {
	var out phase1.Record
	err := r.call(ctx, RouteStart, pod, Ask{Input: &in}, &out)
	return out, err
}

func (r remote) Stop(ctx context.Context, pod Pod, key string) error {
	return r.call(ctx, RouteStop, pod, Ask{Machine: key}, nil)
}

func (r remote) List(ctx context.Context) ([]phase1.Record, error) {
	var out []phase1.Record
	err := r.call(ctx, RouteList, Pod{}, Ask{}, &out)
	return out, err
}

func (r remote) Find(ctx context.Context, key string) (found phase1.Record, ok bool, err error) {
	all, err := r.List(ctx)
	for _, one := range all {
		if one.Machine != key {
			continue
		}
		if ok {
			return phase1.Record{}, false, model.Faultf(model.CodeInvalidEnv, "", "machine %s is in the pods %s and %s", key,
				found.In, one.In)
		}
		found, ok = one, true
	}
	return found, ok, err
}

// Serve waits: the agent serves.
func (r remote) Serve(ctx context.Context, _ Pod, _ string) error {
	<-ctx.Done()
	return nil
}

func (r remote) Close() error { return nil }

// call asks the agent one thing.
func (r remote) call(ctx context.Context, route string, pod Pod, ask Ask, out any) error {
	ask.ID, ask.Root = pod.ID, pod.Root
	if pod.NS != nil {
		ask.Netns = pod.NS.Path()
	}
	err := adminapi.Request{
		Socket: adminapi.Path(r.socket), Method: http.MethodPost, Path: route, Body: ask, NS: pod.NS,
		Timeout: wire.CallMillis * time.Millisecond, Server: "agent that brings machines' networks into pods",
	}.Do(ctx, out)
	var refused *model.Fault
	if err != nil && (errors.Is(err, adminapi.ErrNoServer) || !errors.As(err, &refused)) {
		return model.Faultf(model.CodeTryAgain, "try again: what it had begun it takes up, or back", "agent at %s: %w",
			r.socket, err)
	}
	return err
}
