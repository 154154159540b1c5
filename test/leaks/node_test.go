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

// node is a node with a runtime and optionally an agent.
type node struct {
	t      *testing.T
	dir    string // short, because of sockets in it
	runner *runner
	cni    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
	agent  *agent
	other  *pod

	mu     sync.Mutex
	serial int
}

// pod is a container.
type pod struct {
	id, netns string
	rt        *libcni.RuntimeConf
}

// newNode creates a node whose runtime executes the plugins directly, or through an agent.
func newNode(t *testing.T, withAgent bool) *node {
	t.Helper()
	mountRun(t)
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
	if withAgent {
		conf = agentChain(t, conf, dir+"/cni.sock")
		n.agent = n.startAgent()
	}
	if n.list, err = libcni.NetworkConfFromBytes(conf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.cleanUp)
	n.other = n.pod()
	n.mustAdd(n.other)
	return n
}

// chain returns the realistic chain, or another one of the directory.
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
	list["cniVersion"] = "1.1.0" // for GC
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

// agentChain returns the chain as delegates of weft-cni.
func agentChain(t *testing.T, chain []byte, socket string) []byte {
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

// removeNetns deletes a pod's namespace.
func (n *node) removeNetns(p *pod) {
	if _, err := os.Stat(p.netns); err != nil {
		return
	}
	if err := netns.Remove(p.netns); err != nil {
		n.t.Error(err)
	}
}

// cleanUp removes what a failed test leaves.
func (n *node) cleanUp() {
	if n.agent != nil {
		n.agent.stop() // or it would repair what is flushed here
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

func withTimeout(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 2*time.Minute)
}

func (n *node) add(p *pod) error {
	ctx, cancel := withTimeout(n.t)
	defer cancel()
	_, err := n.cni.AddNetworkList(ctx, n.list, p.rt)
	return err
}

// attach is add that returns the pod's address.
func (n *node) attach(p *pod) (string, error) {
	ctx, cancel := withTimeout(n.t)
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

// attachAsRuntime attaches a pod as a runtime does: an ADD that is to be tried again later (code 11) is followed by a DEL
// and another ADD. On a busy host an agent may not answer a ping within the time that weft-cni waits.
func (n *node) attachAsRuntime(p *pod) (ip string, retries int, err error) {
	for end := time.Now().Add(2 * time.Minute); ; retries++ {
		ip, err = n.attach(p)
		var refused *types.Error
		if err == nil || !errors.As(err, &refused) || refused.Code != types.ErrTryAgainLater || time.Now().After(end) {
			return ip, retries, err
		}
		time.Sleep(100 * time.Millisecond)
		if err := n.del(p); err != nil {
			return ip, retries, err
		}
	}
}

// mustAdd attaches a pod as a runtime does, and fails the test if it cannot.
func (n *node) mustAdd(p *pod) {
	n.t.Helper()
	if _, _, err := n.attachAsRuntime(p); err != nil {
		n.t.Fatalf("ADD: %v", err)
	}
}

func (n *node) del(p *pod) error {
	ctx, cancel := withTimeout(n.t)
	defer cancel()
	return n.cni.DelNetworkList(ctx, n.list, p.rt)
}

func (n *node) check(p *pod) error {
	ctx, cancel := withTimeout(n.t)
	defer cancel()
	return n.cni.CheckNetworkList(ctx, n.list, p.rt)
}

func (n *node) gc(valid ...*pod) error {
	ctx, cancel := withTimeout(n.t)
	defer cancel()
	args := &libcni.GCArgs{}
	for _, p := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: p.id, IfName: "eth0"})
	}
	return n.cni.GCNetworkList(ctx, n.list, args)
}

// runner implements libcni's invoke.Exec and can kill plugins.
type runner struct {
	version.PluginDecoder

	mu       sync.Mutex
	killNext bool // kill the running plugin, or else the next one
	running  *os.Process
	at       string // the plugin that was killed
}

// killAfter kills the plugin that runs after a time. The returned function cancels that, and returns the killed plugin.
func (r *runner) killAfter(after time.Duration) func() string {
	r.mu.Lock()
	r.at = ""
	r.mu.Unlock()
	over := false // the timer may have fired and wait for the lock
	timer := time.AfterFunc(after, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if over {
			return
		}
		r.killNext = true
		if r.running != nil {
			_ = r.running.Kill()
		}
	})
	return func() string {
		timer.Stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		over, r.killNext = true, false
		return r.at
	}
}

// ExecPlugin implements invoke.Exec.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = time.Second // children of a killed plugin keep its output open
	r.mu.Lock()
	err := cmd.Start()
	if err == nil {
		r.running = cmd.Process
		if r.killNext {
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
		r.at, r.killNext = filepath.Base(path), false
		return nil, fmt.Errorf("%s was killed", filepath.Base(path))
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return stdout.Bytes(), nil
	}
	var cniErr types.Error
	if json.Unmarshal(stdout.Bytes(), &cniErr) == nil && cniErr.Msg != "" {
		return nil, &cniErr
	}
	return nil, fmt.Errorf("plugin %s: %w: %s", path, err, stderr.String())
}

// FindInPath implements invoke.Exec.
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}
