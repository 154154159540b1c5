// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// node is a node with a runtime and, perhaps, an agent.
type node struct {
	t      *testing.T
	dir    string // short: sockets lie in it
	runner *runner
	cni    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
	agent  *agent
	keeper *pod

	mu     sync.Mutex
	serial int
}

// pod is a container.
type pod struct {
	id, netns string
	rt        *libcni.RuntimeConf
}

// newNode makes a node whose runtime executes the plugins itself, or hands the chain to an agent.
func newNode(t *testing.T, throughAgent bool) *node {
	t.Helper()
	ownRun(t)
	dir, err := os.MkdirTemp("", "wl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, runner: &runner{}}
	bins := []string{nettest.Programs(t) + "/cni"}
	if other := os.Getenv("WEFT_LEAKS_BIN_DIR"); other != "" {
		bins = []string{other}
	}
	n.cni = libcni.NewCNIConfigWithCacheDir(bins, dir+"/cache", n.runner)
	conf := n.chain()
	if throughAgent {
		conf = shimmed(t, conf, dir+"/cni.sock")
		n.agent = n.startAgent()
	}
	if n.list, err = libcni.NetworkConfFromBytes(conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.tidy)
	n.keeper = n.pod()
	if err := n.add(n.keeper); err != nil {
		t.Fatalf("ADD: %v", err)
	}
	return n
}

// chain is the realistic one, or another of the folder.
func (n *node) chain() []byte {
	n.t.Helper()
	b, err := os.ReadFile("../chains/" + cmp.Or(os.Getenv("WEFT_LEAKS_CHAIN"), "pod") + ".conflist")
	if err != nil {
		n.t.Fatal(err)
	}
	var list map[string]any
	if err := json.Unmarshal(b, &list); err != nil {
		n.t.Fatal(err)
	}
	list["cniVersion"] = "1.1.0" // of which GC is
	for _, p := range list["plugins"].([]any) {
		if ipam, ok := p.(map[string]any)["ipam"].(map[string]any); ok {
			ipam["dataDir"] = n.dir + "/networks"
		}
	}
	if b, err = json.Marshal(list); err != nil {
		n.t.Fatal(err)
	}
	return b
}

// shimmed is the agent's form of a chain.
func shimmed(t *testing.T, chain []byte, socket string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "bench-pod", "plugins": []any{map[string]any{
			"type": "weft-cni", "socket": socket, "delegates": []any{json.RawMessage(chain)},
			"capabilities": map[string]bool{"portMappings": true, "bandwidth": true},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (n *node) pod() *pod {
	n.t.Helper()
	n.mu.Lock()
	n.serial++
	i := n.serial
	n.mu.Unlock()
	p := &pod{id: fmt.Sprintf("pod%d", i), netns: fmt.Sprintf("%s/ns/%d", n.dir, i)}
	ns, err := netns.New(p.netns)
	if err == nil {
		err = ns.Close()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	p.rt = &libcni.RuntimeConf{
		ContainerID: p.id, NetNS: p.netns, IfName: "eth0",
		CapabilityArgs: map[string]any{
			"portMappings": []map[string]any{
				{"hostPort": 10000 + i, "containerPort": 80, "protocol": "tcp"},
				{"hostPort": 10000 + i, "containerPort": 53, "protocol": "udp"},
			},
			"bandwidth": map[string]any{
				"ingressRate": 8 << 20, "ingressBurst": 8 << 20, "egressRate": 8 << 20, "egressBurst": 8 << 20,
			},
		},
	}
	return p
}

// end takes a pod's namespace away.
func (n *node) end(p *pod) {
	if _, err := os.Stat(p.netns); err != nil {
		return
	}
	if err := netns.Remove(p.netns); err != nil {
		n.t.Error(err)
	}
}

// tidy takes away what a failed test leaves.
func (n *node) tidy() {
	if n.agent != nil {
		n.agent.stop() // or it would mend what is flushed here
	}
	left, _ := filepath.Glob(n.dir + "/ns/*")
	for _, path := range left {
		_ = netns.Remove(path)
	}
	_, _ = nettest.Try(nil, "nft", "flush", "ruleset")
	for name := range names(n.t, "ip", "-j", "link", "show") {
		if name != "lo" {
			_, _ = nettest.Try(nil, "ip", "link", "del", name)
		}
	}
}

func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 2*time.Minute)
}

func (n *node) add(p *pod) error {
	ctx, cancel := bounded(n.t)
	defer cancel()
	_, err := n.cni.AddNetworkList(ctx, n.list, p.rt)
	return err
}

// attach is add with the address that the pod got.
func (n *node) attach(p *pod) (string, error) {
	ctx, cancel := bounded(n.t)
	defer cancel()
	r, err := n.cni.AddNetworkList(ctx, n.list, p.rt)
	if err != nil {
		return "", err
	}
	full, err := current.GetResult(r)
	if err != nil {
		return "", err
	}
	if len(full.IPs) != 1 {
		return "", fmt.Errorf("%d addresses", len(full.IPs))
	}
	return full.IPs[0].Address.IP.String(), nil
}

func (n *node) del(p *pod) error {
	ctx, cancel := bounded(n.t)
	defer cancel()
	return n.cni.DelNetworkList(ctx, n.list, p.rt)
}

func (n *node) check(p *pod) error {
	ctx, cancel := bounded(n.t)
	defer cancel()
	return n.cni.CheckNetworkList(ctx, n.list, p.rt)
}

func (n *node) gc(valid ...*pod) error {
	ctx, cancel := bounded(n.t)
	defer cancel()
	args := &libcni.GCArgs{}
	for _, p := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.id, IfName: "eth0"})
	}
	return n.cni.GCNetworkList(ctx, n.list, args)
}

// runner is libcni's way to execute plugins, with a killer.
type runner struct {
	version.PluginDecoder

	mu      sync.Mutex
	doomed  bool // whoever runs is killed, or else whoever starts next
	running *os.Process
	at      string // the plugin that was killed
}

// doom kills what runs after a time. The function that it gives ends the danger, and tells which plugin was killed.
func (r *runner) doom(after time.Duration) func() string {
	r.mu.Lock()
	r.at = ""
	r.mu.Unlock()
	over := false // the timer may have fired and wait for the lock while the danger ends
	timer := time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if over {
			return
		}
		r.doomed = true
		if r.running != nil {
			_ = r.running.Kill()
		}
	})
	return func() string {
		timer.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		over, r.doomed = true, false
		return r.at
	}
}

// ExecPlugin runs one plugin.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = time.Second // a killed plugin's children hold its output
	r.mu.Lock()
	err := cmd.Start()
	if err == nil {
		r.running = cmd.Process
		if r.doomed {
			_ = cmd.Process.Kill()
		}
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = nil
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.at, r.doomed = filepath.Base(path), false
		return nil, fmt.Errorf("%s was killed", filepath.Base(path))
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return stdout.Bytes(), nil
	}
	var fault types.Error
	if json.Unmarshal(stdout.Bytes(), &fault) == nil && fault.Msg != "" {
		return nil, &fault
	}
	return nil, fmt.Errorf("plugin %s: %w: %s", path, err, stderr.String())
}

// FindInPath finds a plugin as libcni does.
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}
