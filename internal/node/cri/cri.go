// SPDX-License-Identifier: Apache-2.0

// Package cri asks the container runtime which sandboxes it has, over its CRI socket: containerd never calls the
// plugins' GC, so that the agent compares for itself.
//
// A runtime that starts, or that is not the one whose pods these are, answers with an empty list. So an empty answer is
// an error here (ErrEmpty), never a list.
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

// ErrEmpty tells that the runtime has no sandbox at all, or does not know them yet.
var ErrEmpty = errors.New("the runtime lists no sandbox")

const (
	askLimit = 10 * time.Second
	// mostAnswer is the size of an answer with some thousand sandboxes and their annotations.
	mostAnswer = 16 << 20 // bytes
)

// Sandbox is one pod as the runtime has it.
type Sandbox struct {
	ID        string
	Namespace string
	Name      string
	UID       string
	// Ready is false for one that is stopped, or about to be.
	Ready bool
}

// Client talks to one runtime.
type Client struct {
	path string
	conn *grpc.ClientConn
	api  runtime.RuntimeServiceClient
}

// Endpoints are the sockets that "auto" looks for.
func Endpoints() []string {
	return []string{
		"unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock", "unix:///run/k3s/containerd/containerd.sock",
	}
}

// Find is the first endpoint whose socket is there.
func Find(endpoints []string) (string, error) {
	for _, e := range endpoints {
		if info, err := os.Stat(strings.TrimPrefix(e, "unix://")); err == nil && info.Mode().Type() == os.ModeSocket {
			return e, nil
		}
	}
	return "", model.Faultf(model.CodeIO, "name the runtime's with runtime.endpoint", "CRI socket: none of %s is there",
		strings.Join(endpoints, ", "))
}

// Dial makes a client. The socket is connected to when something is asked, and again when the runtime was restarted.
func Dial(endpoint string) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of the node that only root may connect to
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)),
		grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(time.Minute))
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidConf, "", "CRI socket %q: %w", endpoint, err)
	}
	return &Client{path: path, conn: conn, api: runtime.NewRuntimeServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Sandboxes lists all sandboxes, running or not. No sandbox is an error.
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

// Network says whether the runtime finds the pods' network ready, and if not, why.
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
	return false, "", fmt.Errorf("CRI socket %s: the runtime says nothing about its network", c.path)
}

// Version is the runtime's name and version.
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
		hint = "does the runtime run, and is its socket mounted into the agent's pod?"
	case codes.Unimplemented:
		hint = "the runtime must speak CRI v1"
	case codes.DeadlineExceeded:
		hint = "the runtime is there and does not answer"
	}
	return model.Faultf(model.CodeTryAgain, hint, "CRI socket %s: %w", c.path, err)
}
