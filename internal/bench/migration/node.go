// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/vm/child"
)

// node is a node with an agent.
type node struct {
	w       *world
	name    string
	ns      *netns.NS
	plumber *network.Attacher
	log     *os.File
	agent   *exec.Cmd
}

// pod is an attached pod.
type pod struct {
	node            *node
	namespace, name string
	vm              string // the name of its VM; empty without one
	incoming        bool
	ns              *netns.NS
	addr            netip.Addr
	attached        []network.Attachment
}

func (w *world) node(ctx context.Context, i int) (*node, error) {
	n := &node{w: w, name: fmt.Sprintf("n%d", i+1)}
	var err error
	if n.ns, err = w.namespace(n.name); err != nil {
		return nil, err
	}
	if err := w.connect(i, n.ns); err != nil {
		return nil, err
	}
	for _, sub := range []string{"net.d", "cache"} {
		if err := os.MkdirAll(n.path(sub), 0o755); err != nil {
			return nil, err
		}
	}
	text := fmt.Sprintf(configuration, n.path("net.d"), w.cfg.Encapsulation, n.path("wireguard.key"))
	if err := os.WriteFile(n.path("weft.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	if n.log, err = os.Create(n.path("agent.log")); err != nil {
		return nil, err
	}
	w.undo = append(w.undo, n.log.Close)
	n.agent = exec.Command(w.cfg.Agent, "agent", "--node", n.name, "--socket", n.socket(), "--state-dir", n.path("state"),
		"--store-dir", w.path("store"), "--config", n.path("weft.yaml"), "--address-dir", n.path("addresses"))
	n.agent.Stderr = n.log
	c, err := child.Start(n.ns, n.agent)
	if err != nil {
		return nil, err
	}
	w.undo = append(w.undo, func() error { c.Kill(); return nil })
	n.plumber = network.New(network.Config{BinDirs: []string{w.cfg.BinDir}, CacheDir: n.path("cache"), Stderr: n.log})
	return n, until(ctx, "node "+n.name+": its network configuration", func() bool {
		_, err := n.confList()
		return err == nil
	})
}

func (n *node) path(elem ...string) string {
	return n.w.path(append([]string{n.name}, elem...)...)
}

func (n *node) socket() string { return n.path("agent.sock") }

// confList returns the configuration list that the agent has written for the runtime.
func (n *node) confList() ([]byte, error) {
	return os.ReadFile(filepath.Join(n.path("net.d"), "00-weft.conflist"))
}

// run creates a pod and attaches it.
func (n *node) run(ctx context.Context, p pod) (*pod, error) {
	p.node = n
	var err error
	if p.ns, err = n.w.namespace(p.name); err != nil {
		return nil, err
	}
	if err := n.w.createPod(ctx, p); err != nil {
		return nil, err
	}
	text, err := n.confList()
	if err != nil {
		return nil, err
	}
	list, err := confdir.Parse(text, n.path("net.d"))
	if err != nil {
		return nil, err
	}
	p.attached = []network.Attachment{{IfName: network.IfDefault, List: list.Bytes}}
	// The agent sees the pod shortly after its creation.
	var last error
	err = until(ctx, "pod "+p.name, func() bool {
		var got network.Result
		if got, last = n.plumber.SetUpPod(ctx, p.sandbox(), p.attached); last == nil && len(got.IPs) > 0 {
			p.addr = got.IPs[0]
		}
		return last == nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, last)
	}
	return &p, nil
}

func (p *pod) sandbox() network.Pod {
	return network.Pod{ID: p.name, Netns: p.ns.Path(), Args: [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", p.namespace},
		{"K8S_POD_NAME", p.name},
		{"K8S_POD_UID", p.name},
		{"K8S_POD_INFRA_CONTAINER_ID", p.name},
	}}
}

// end detaches a pod.
func (p *pod) end(ctx context.Context) error {
	return p.node.plumber.TearDownPod(ctx, p.sandbox(), p.attached)
}

// logTail returns the end of the agent's log.
func (n *node) logTail() string {
	const size = 4 << 10
	b, err := os.ReadFile(n.path("agent.log"))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("\nagent of %s:\n%s", n.name, b[max(0, len(b)-size):])
}
