// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answers is a runtime on a real socket that returns what the test sets.
type answers struct {
	runtime.UnimplementedRuntimeServiceServer
	items []*runtime.PodSandbox
	err   error
	hang  bool
}

func (a *answers) ListPodSandbox(
	ctx context.Context, _ *runtime.ListPodSandboxRequest,
) (*runtime.ListPodSandboxResponse, error) {
	if a.hang {
		<-ctx.Done()
	}
	return &runtime.ListPodSandboxResponse{Items: a.items}, a.err
}

func (a *answers) Status(context.Context, *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	return &runtime.StatusResponse{Status: &runtime.RuntimeStatus{Conditions: []*runtime.RuntimeCondition{
		{
			Type: runtime.RuntimeReady, Status: true,
		}, {Type: runtime.NetworkReady, Reason: "NetworkPluginNotReady", Message: "no conf"},
	}}}, nil
}

// serve starts the runtime at a path and returns a function that stops it.
func serve(t *testing.T, path string, a *answers) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(s, a)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	return func() { s.Stop(); <-done }
}

func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func client(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSandboxes(t *testing.T) {
	path := socket(t)
	a := &answers{items: []*runtime.PodSandbox{
		{
			Id: "a", State: runtime.PodSandboxState_SANDBOX_READY,
			Metadata: &runtime.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"},
		},
		{Id: "b", State: runtime.PodSandboxState_SANDBOX_NOTREADY},
	}}
	stop := serve(t, path, a)
	c := client(t, path)
	got, err := c.Sandboxes(t.Context())
	want := []Sandbox{{ID: "a", Namespace: "default", Name: "web", UID: "u1", Ready: true}, {ID: "b"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if ready, why, err := c.Network(t.Context()); ready || why != "NetworkPluginNotReady no conf" || err != nil {
		t.Errorf("%v %s %v", ready, why, err)
	}
	if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "use a runtime with CRI v1") {
		t.Errorf("%v", err)
	}
	// A restarted runtime is connected to again.
	stop()
	if _, err := c.Sandboxes(t.Context()); err == nil || !strings.Contains(err.Error(), "check that the runtime runs") {
		t.Errorf("%v", err)
	}
	defer serve(t, path, a)()
	for range 1200 {
		if got, err = c.Sandboxes(t.Context()); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNoList: a response that cannot be the list of this node's sandboxes is an error.
func TestNoList(t *testing.T) {
	for name, a := range map[string]*answers{
		"empty":   {},
		"no id":   {items: []*runtime.PodSandbox{{}}},
		"refused": {err: errors.New("still starting")},
		"hangs":   {hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			defer serve(t, path, a)()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			got, err := client(t, path).Sandboxes(ctx)
			if err == nil || got != nil || errors.Is(err, ErrEmpty) != (name == "empty") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	path := socket(t)
	if e, err := Find([]string{"unix://" + path}); err == nil ||
		err.Error() != "CRI socket: none of unix://"+path+" is there (name the runtime's with runtime.endpoint)" {
		t.Errorf("%s, %v", e, err)
	}
	defer serve(t, path, &answers{})()
	if e, err := Find([]string{"unix:///none", "unix://" + path}); err != nil || e != "unix://"+path {
		t.Errorf("%s, %v", e, err)
	}
}
