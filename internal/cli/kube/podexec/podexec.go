// SPDX-License-Identifier: Apache-2.0

// Package podexec reaches the agents of a Kubernetes cluster by executing weft in their pods. It is not part of package
// kube because weft-agent links that.
package podexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	clikube "github.com/weft-net/weft/internal/cli/kube"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
)

// AgentLabel selects the pods of weft's agents, in all namespaces.
const AgentLabel = "app.kubernetes.io/name=weft"

// agentContainer is the container of the agent in its pod.
const agentContainer = "agent"

// AgentPod is the pod of a node's agent.
type AgentPod = kube.PodOnNode

// Agents reaches the agents of a Kubernetes cluster by executing weft in their pods: who may create pods/exec there may
// do what root can do on the nodes, so weft needs no access control of its own.
type Agents struct {
	store  *kube.Store
	config *rest.Config
}

// Open connects to the API server that kube.Open would choose, or to that of a context; nothing is requested yet.
func Open(env ui.Env, kubeconfig, context string) (a *Agents, found bool, err error) {
	access, found := clikube.AccessOf(env, kubeconfig, context)
	if !found {
		return nil, false, nil
	}
	// client-go logs the end of each stream as an error; errors of requests are returned.
	kube.LogTo(slog.New(slog.DiscardHandler))
	s, err := clikube.OpenStore(env, access)
	if err != nil {
		return nil, true, err
	}
	cfg, err := access.Config()
	return &Agents{store: s, config: cfg}, true, err
}

// Namespace returns the namespace of the context that Open would choose, "default" if there is none.
func Namespace(env ui.Env, kubeconfig, context string) string {
	access, _ := clikube.AccessOf(env, kubeconfig, context)
	return access.Namespace()
}

// Objects returns the server's objects.
func (a *Agents) Objects() store.Objects { return a.store.Objects() }

// List returns the pods of agents that are running.
func (a *Agents) List(ctx context.Context) ([]AgentPod, error) {
	pods, err := a.store.RunningPods(ctx, AgentLabel)
	if err != nil {
		return nil, fmt.Errorf("pods of weft's agents: %w", err)
	}
	return pods, nil
}

// Dial connects to the admin socket of an agent, through `weft relay` in its pod. The connection ends with ctx.
func (a *Agents) Dial(ctx context.Context, p AgentPod) (net.Conn, error) {
	executor, err := a.executor(p, agentContainer, []string{"/usr/bin/weft", "relay"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	answers, sent := io.Pipe()
	requests, received := io.Pipe()
	go func() {
		defer cancel()
		var said bytes.Buffer
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: requests, Stdout: sent, Stderr: &said})
		err = execError(p, said.String(), err)
		_ = sent.CloseWithError(err)
		_ = requests.CloseWithError(err)
	}()
	return &execConn{PipeReader: answers, to: received, cancel: cancel}, nil
}

// executor executes a command in a container: by WebSocket, and where the server or a proxy has none by SPDY.
func (a *Agents) executor(p AgentPod, container string, command []string) (remotecommand.Executor, error) {
	request := a.store.ExecURL(p.Namespace, p.Name, container, command)
	web, err := remotecommand.NewWebSocketExecutor(a.config, "GET", request.String())
	if err != nil {
		return nil, fmt.Errorf("exec in pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(a.config, "POST", request)
	if err != nil {
		return nil, fmt.Errorf("exec in pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	executor, err := remotecommand.NewFallbackExecutor(web, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, fmt.Errorf("exec in pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return executor, nil
}

// Exec executes a command in a container of any pod, and returns its standard output.
func (a *Agents) Exec(ctx context.Context, p AgentPod, container string, command []string) ([]byte, error) {
	var out bytes.Buffer
	if err := a.exec(ctx, p, container, command, &out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// ExecAgent executes a command in the pod of an agent, and writes its standard output to w while it runs.
func (a *Agents) ExecAgent(ctx context.Context, p AgentPod, command []string, w io.Writer) error {
	return a.exec(ctx, p, agentContainer, command, w)
}

// Run executes a command in the pod of an agent with its standard output and error, and returns its exit code.
func (a *Agents) Run(ctx context.Context, p AgentPod, command []string, stdout, stderr io.Writer) (code int, err error) {
	executor, err := a.executor(p, agentContainer, command)
	if err != nil {
		return 0, err
	}
	streams := remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr}
	err = executor.StreamWithContext(ctx, streams)
	var exit exec.CodeExitError
	if err == nil || errors.As(err, &exit) {
		return exit.Code, nil
	}
	return 0, execError(p, "", err)
}

func (a *Agents) exec(ctx context.Context, p AgentPod, container string, command []string, w io.Writer) error {
	executor, err := a.executor(p, container, command)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	streams := remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: w, Stderr: &said}
	if err := executor.StreamWithContext(ctx, streams); err != nil {
		return execError(p, said.String(), err)
	}
	return nil
}

// execError names the pod, and the right that is missing.
func execError(p AgentPod, said string, err error) error {
	err = kube.ExplainForbidden(err)
	switch {
	case err == nil:
		return io.EOF
	case strings.TrimSpace(said) != "":
		return fmt.Errorf("exec in pod %s/%s: %w: %s", p.Namespace, p.Name, err, strings.TrimSpace(said))
	}
	return fmt.Errorf("exec in pod %s/%s: %w", p.Namespace, p.Name, err)
}

// execConn is the connection to a program in a pod. Deadlines are those of its context.
type execConn struct {
	*io.PipeReader
	to     *io.PipeWriter
	cancel context.CancelFunc
}

func (c *execConn) Write(b []byte) (int, error) { return c.to.Write(b) }

func (c *execConn) Close() error {
	c.cancel()
	return errors.Join(c.to.Close(), c.PipeReader.Close())
}

func (*execConn) LocalAddr() net.Addr              { return execAddr{} }
func (*execConn) RemoteAddr() net.Addr             { return execAddr{} }
func (*execConn) SetDeadline(time.Time) error      { return nil }
func (*execConn) SetReadDeadline(time.Time) error  { return nil }
func (*execConn) SetWriteDeadline(time.Time) error { return nil }

// execAddr is the address of both ends of an execConn.
type execAddr struct{}

func (execAddr) Network() string { return "exec" }
func (execAddr) String() string  { return "exec" }
