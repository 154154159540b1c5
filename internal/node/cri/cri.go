// SPDX-License-Identifier: Apache-2.0

// Package cri lists the container runtime's sandboxes over its CRI socket: containerd never calls the plugins' GC, so
// the agent compares for itself.
//
// A runtime that is starting, or that runs other pods than this node's, returns an empty list. So an empty list is an
// error here (ErrEmpty).
package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/weft-net/weft/internal/model"
)

// ErrEmpty reports that the runtime has no sandbox at all, or has not loaded them yet.
var ErrEmpty = errors.New("the runtime lists no sandbox")

const (
	askLimit = 10 * time.Second
	// mostAnswer fits a response with some thousand sandboxes and their annotations.
	mostAnswer = 16 << 20 // bytes
)

// Sandbox is one pod sandbox of the runtime.
type Sandbox struct {
	ID        string
	Namespace string
	Name      string
	UID       string
	// Ready is false for a sandbox that is stopped or stopping.
	Ready bool
}

// Client is a CRI client of one runtime.
type Client struct {
	path string
	conn *grpc.ClientConn
	api  runtime.RuntimeServiceClient
}

// Endpoints returns the sockets that "auto" tries.
func Endpoints() []string {
	return []string{
		"unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock", "unix:///run/k3s/containerd/containerd.sock",
	}
}

// Find returns the first endpoint whose socket exists.
func Find(endpoints []string) (string, error) {
	for _, e := range endpoints {
		if info, err := os.Stat(strings.TrimPrefix(e, "unix://")); err == nil && info.Mode().Type() == os.ModeSocket {
			return e, nil
		}
	}
	return "", model.Errorf(model.CodeIO, "name the runtime's with runtime.endpoint", "CRI socket: none of %s is there",
		strings.Join(endpoints, ", "))
}

// Dial returns a client. It connects at the first request, and again after the runtime was restarted.
func Dial(endpoint string) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of the node that only root may connect to
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)),
		grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(time.Minute))
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "", "CRI socket %q: %w", endpoint, err)
	}
	return &Client{path: path, conn: conn, api: runtime.NewRuntimeServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Sandboxes lists all sandboxes, running or not. An empty list is an error.
func (c *Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := c.api.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
	if err != nil {
		return nil, c.fault(err)
	}
	all := make([]Sandbox, 0, len(answer.GetItems()))
	for _, s := range answer.GetItems() {
		if s.GetId() == "" {
			return nil, fmt.Errorf("CRI socket %s: a sandbox without an id", c.path)
		}
		m := s.GetMetadata()
		all = append(all, Sandbox{
			ID: s.GetId(), Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(),
			Ready: s.GetState() == runtime.PodSandboxState_SANDBOX_READY,
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("CRI socket %s: %w", c.path, ErrEmpty)
	}
	return all, nil
}

// Network reports whether the runtime's condition NetworkReady is true, and if not, why.
func (c *Client) Network(ctx context.Context) (ready bool, why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := c.api.Status(ctx, &runtime.StatusRequest{})
	if err != nil {
		return false, "", c.fault(err)
	}
	for _, condition := range answer.GetStatus().GetConditions() {
		if condition.GetType() == runtime.NetworkReady {
			return condition.GetStatus(), strings.TrimSpace(condition.GetReason() + " " + condition.GetMessage()), nil
		}
	}
	return false, "", fmt.Errorf("CRI socket %s: the runtime's status has no NetworkReady condition", c.path)
}

// Version returns the runtime's name and version.
func (c *Client) Version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := c.api.Version(ctx, &runtime.VersionRequest{})
	if err != nil {
		return "", c.fault(err)
	}
	return answer.GetRuntimeName() + " " + answer.GetRuntimeVersion(), nil
}

func (c *Client) fault(err error) error {
	hint := ""
	switch status.Code(err) {
	case codes.Unavailable:
		hint = "check that the runtime runs and that its socket is mounted into the agent's pod"
	case codes.Unimplemented:
		hint = "use a runtime with CRI v1"
	case codes.DeadlineExceeded:
		hint = "the runtime is running but does not respond"
	}
	return model.Errorf(model.CodeTryAgain, hint, "CRI socket %s: %w", c.path, err)
}
