// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cli/kube/podexec"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Limits of the replacement of an agent.
const (
	replaceTimeout = 2 * time.Minute
	replacePoll    = 200 * time.Millisecond
)

// errNoPods: a command in a pod needs more than one agent's socket.
func errNoPods() error {
	return model.Errorf(model.CodeInvalidConf, "name a lab with --dir, or a cluster with --kubeconfig", "pods are not known")
}

// Exec executes weft in a container of a pod and returns its standard output. In Kubernetes it needs the right to create
// pods/exec in the pod's namespace.
func (c Cluster) Exec(ctx context.Context, namespace, pod, container string, args ...string) ([]byte, error) {
	if c.server != nil {
		at := podexec.AgentPod{Namespace: namespace, Name: pod}
		return c.server.Exec(ctx, at, container, append([]string{c.Program()}, args...))
	}
	if c.Dir == "" {
		return nil, errNoPods()
	}
	argv := append([]string{"lab", "exec", "--dir", c.Dir, namespace + "/" + pod, "--", c.self}, args...)
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, c.self, argv...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second // what it executes may keep them open
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("exec in pod %s/%s: %w: %s", namespace, pod, err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

// SupportBundle has weft write the support bundle of a node, in the pod of its agent or in the lab's node.
func (c Cluster) SupportBundle(ctx context.Context, node string, w io.Writer) error {
	args := []string{"support-bundle", "-o", "-"}
	switch {
	case c.server != nil:
		pods, err := c.server.List(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(pods, func(p podexec.AgentPod) bool { return p.Node == node })
		if i < 0 {
			return errNoPod
		}
		return c.server.ExecAgent(ctx, pods[i], append([]string{c.Program()}, args...), w)
	case c.Dir == "":
		return errNoPods()
	}
	argv := append([]string{"lab", "exec", "--dir", c.Dir, node, "--", c.self}, args...)
	argv = append(argv, "--socket", filepath.Join(c.Dir, "nodes", node, "agent", "agent.sock"))
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, c.self, argv...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, &said, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("support bundle: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// Program is the path of weft in pods with weft's image; a lab's pods see the host's files.
func (c Cluster) Program() string {
	if c.Dir != "" {
		return c.self
	}
	return "/usr/bin/weft"
}

// Image returns the image of the agents. A lab has no images.
func (c Cluster) Image(ctx context.Context) (string, error) {
	if c.Dir != "" {
		return "weft", nil
	}
	if c.server == nil {
		return "", errNoPods()
	}
	pods, err := c.server.List(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(pods, func(p podexec.AgentPod) bool { return p.Image != "" })
	if i < 0 {
		return "", model.Errorf(model.CodeNotAvailable, "see the agents' DaemonSet", "no agent's pod has an image")
	}
	return pods[i].Image, nil
}

// ReplaceAgent deletes the pod of a node's agent, and returns when the agent of the next one answers.
func (c Cluster) ReplaceAgent(ctx context.Context, node string) error {
	if c.server == nil {
		return model.Errorf(model.CodeNotAvailable, "start it as it was started before",
			"nothing replaces the agent of %s", node)
	}
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	on := func() (p podexec.AgentPod, err error) {
		pods, err := c.server.List(ctx)
		i := slices.IndexFunc(pods, func(p podexec.AgentPod) bool { return p.Node == node })
		if err == nil && i < 0 {
			return p, errNoPod
		}
		if err != nil {
			return p, err
		}
		return pods[i], nil
	}
	old, err := on()
	if err != nil {
		return err
	}
	if err := c.Objects.Delete(ctx, store.Pods(), store.PodKey(old.Namespace, old.Name), ""); err != nil {
		return err
	}
	for {
		p, err := on()
		if err == nil && p.Name != old.Name {
			a := Agent{
				Node: node, at: "pod " + p.Namespace + "/" + p.Name,
				dial: func(ctx context.Context) (net.Conn, error) { return c.server.Dial(ctx, p) },
			}
			q := adminapi.Request{Method: http.MethodGet, Path: adminapi.RouteStatus, Timeout: replaceTimeout}
			if err = a.Do(ctx, q, new(any)); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("agent of %s: %w", node, errors.Join(ctx.Err(), err))
		case <-time.After(replacePoll):
		}
	}
}
