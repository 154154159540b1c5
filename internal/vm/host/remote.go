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

// The agent's routes for VMs; the method is POST.
const (
	RouteStart = "/machines/start"
	RouteStop  = "/machines/stop"
	RouteList  = "/machines/list"
)

// Request is the body of a request to the agent. The descriptor of the pod's namespace is sent with it.
type Request struct {
	// Netns is the path of the namespace in the caller, ID and Root are Pod's.
	Netns string `json:"netns,omitempty"`
	ID    string `json:"id,omitempty"`
	Root  string `json:"root,omitempty"`
	// VM is the key for Stop, Input is for Start.
	VM    string      `json:"machine,omitempty"`
	Input *plan.Input `json:"input,omitempty"`
}

// remote is a client of the agent.
type remote struct{ socket string }

func (r remote) Start(ctx context.Context, pod Pod, in plan.Input) (phase1.Record, error) {
	var out phase1.Record
	err := r.call(ctx, RouteStart, pod, Request{Input: &in}, &out)
	return out, err
}

func (r remote) Stop(ctx context.Context, pod Pod, key string) error {
	return r.call(ctx, RouteStop, pod, Request{VM: key}, nil)
}

func (r remote) List(ctx context.Context) ([]phase1.Record, error) {
	var out []phase1.Record
	err := r.call(ctx, RouteList, Pod{}, Request{}, &out)
	return out, err
}

func (r remote) Find(ctx context.Context, key string) (found phase1.Record, ok bool, err error) {
	all, err := r.List(ctx)
	for _, one := range all {
		if one.VM != key {
			continue
		}
		if ok {
			return phase1.Record{}, false, model.Errorf(model.CodeInvalidEnv, "", "VM %s is in the pods %s and %s", key,
				found.PodID, one.PodID)
		}
		found, ok = one, true
	}
	return found, ok, err
}

// Serve waits: the agent serves weft-guest.
func (r remote) Serve(ctx context.Context, _ Pod, _ string) error {
	<-ctx.Done()
	return nil
}

func (r remote) Close() error { return nil }

// call sends one request to the agent.
func (r remote) call(ctx context.Context, route string, pod Pod, req Request, out any) error {
	req.ID, req.Root = pod.ID, pod.Root
	if pod.NS != nil {
		req.Netns = pod.NS.Path()
	}
	err := adminapi.Request{
		Socket: adminapi.Path(r.socket), Method: http.MethodPost, Path: route, Body: req, NS: pod.NS,
		Timeout: wire.CallMillis * time.Millisecond, Server: "agent for VM networks",
	}.Do(ctx, out)
	var refused *model.Error
	if err != nil && (errors.Is(err, adminapi.ErrNoServer) || !errors.As(err, &refused)) {
		return model.Errorf(model.CodeTryAgain, "try again: the agent resumes the call or rolls it back", "agent at %s: %w",
			r.socket, err)
	}
	return err
}
