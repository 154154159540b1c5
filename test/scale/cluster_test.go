// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// size is the size of the cluster and of the measurements.
type size struct {
	nodes, pods, writes int
	churn               time.Duration
}

func sizes() size {
	if os.Getenv("WEFT_SCALE") != "" {
		return size{nodes: 5000, pods: 100_000, writes: 300, churn: time.Minute}
	}
	return size{nodes: 10, pods: 200, writes: 5, churn: time.Second}
}

// podsPerNode returns the number of pods per node.
func (s size) podsPerNode() int { return s.pods / s.nodes }

// locals is the number of pods of the agent's node, in the namespace shop.
const locals = 10

type fields = map[string]any

// cluster is an API server, and node n0 with an agent.
type cluster struct {
	*apitest.Server
	size
	t     testing.TB
	node  *netns.NS
	dir   string
	agent *exec.Cmd
	done  chan error
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, size: sizes(), node: nettest.NS(t, "node"), dir: t.TempDir()}
	ctl := nettest.NS(t, "ctl")
	nettest.Run(t, ctl, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "eth0", "netns", c.node.Path())
	for ns, at := range map[*netns.NS][]string{ctl: {"v0", "192.168.77.1/24"}, c.node: {"eth0", "192.168.77.10/24"}} {
		nettest.Run(t, ns, "ip", "link", "set", "lo", "up")
		nettest.Run(t, ns, "ip", "addr", "add", at[1], "dev", at[0])
		nettest.Run(t, ns, "ip", "link", "set", at[0], "up")
	}
	c.Server = apitest.Start(t, ctl, netip.MustParseAddr("192.168.77.1"), "--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000")
	for _, pattern := range []string{"../../deploy/crds/weft.dev_*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c.DefineKind(text)
		}
	}
	t.Cleanup(func() { c.stop() })
	return c
}

// start starts the agent and waits until it is ready.
func (c *cluster) start() {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(nettest.Programs(c.t), "weft-agent"), "agent", "--node", "n0", "--socket",
		c.socket(), "--state-dir", filepath.Join(c.dir, "state"),
		"--kubeconfig", c.Kubeconfig(c.URL, ""), "--log-level", "warn")
	log, err := os.Create(filepath.Join(c.dir, "agent.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	ready := make(line, 4)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = ready, log, &syscall.SysProcAttr{Setpgid: true}
	if err := c.node.Do(cmd.Start); err != nil {
		c.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	c.agent, c.done = cmd, done
	select {
	case <-ready:
	case err := <-done:
		c.t.Fatalf("agent: %v: %s", err, c.log())
	case <-time.After(2 * time.Minute):
		c.t.Fatalf("agent is not ready: %s", c.log())
	}
}

type line chan string

func (l line) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

func (c *cluster) log() string {
	b, _ := os.ReadFile(filepath.Join(c.dir, "agent.log"))
	return string(b[max(0, len(b)-3000):])
}

func (c *cluster) socket() string { return filepath.Join(c.dir, "run", "agent.sock") }

func (c *cluster) stop() {
	if c.agent == nil {
		return
	}
	_ = c.agent.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		_ = c.agent.Process.Kill()
		<-c.done
	}
	c.agent = nil
}

// attach attaches the local pods.
func (c *cluster) attach() {
	c.t.Helper()
	plugin := fmt.Sprintf(
		`{"type":"calico","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.0.0.0/24"}]]}}`,
		filepath.Join(c.dir, "addresses"),
	)
	list, err := libcni.NetworkConfFromBytes(
		fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"weft-cni","socket":%q,"delegates":[%s]}]}`,
			c.socket(), plugin),
	)
	if err != nil {
		c.t.Fatal(err)
	}
	cni := libcni.NewCNIConfigWithCacheDir([]string{nettest.Programs(c.t)}, filepath.Join(c.dir, "cache"), nil)
	for i := range locals {
		name := fmt.Sprint("local-", i)
		conf := &libcni.RuntimeConf{ContainerID: "id-" + name, NetNS: nettest.NS(c.t, name).Path(), IfName: "eth0"}
		conf.Args = [][2]string{
			{"K8S_POD_NAMESPACE", "shop"},
			{"K8S_POD_NAME", name},
			{"K8S_POD_UID", "uid-" + name},
			{"K8S_POD_INFRA_CONTAINER_ID", conf.ContainerID},
		}
		until := time.Now().Add(3 * time.Minute) // until policies are synced ADD fails with "try again"
		for {
			_, err := cni.AddNetworkList(c.t.Context(), list, conf)
			if err == nil {
				break
			}
			if time.Now().After(until) || !strings.Contains(err.Error(), "code: 11") &&
				!strings.Contains(err.Error(), "try again") {
				c.t.Fatalf("ADD: %v: %s", err, c.log())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}
