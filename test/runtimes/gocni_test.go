// SPDX-License-Identifier: Apache-2.0

// Package runtimes has only tests: they use weft as container runtimes do, with the runtimes' libraries.
package runtimes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gocni "github.com/containerd/go-cni"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// node is a node with containerd's CNI library instead of containerd.
type node struct {
	t    *testing.T
	dir  string
	stop func()
}

func newNode(t *testing.T) *node {
	t.Helper()
	// The library's cache is always below /var/lib.
	if err := unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount("/var/lib", unix.MNT_DETACH) })
	dir, err := os.MkdirTemp("", "runtime")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{t: t, dir: dir, stop: func() {}}
	for _, d := range []string{"bin", "net.d"} {
		if err := os.Mkdir(n.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.weft("install", "--cni-bin-dir", n.path("bin"))
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) weft(args ...string) string {
	n.t.Helper()
	out, err := exec.CommandContext(n.t.Context(), filepath.Join(nettest.Programs(n.t), "weft"), args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("weft %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (n *node) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.path(name), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// agent starts the agent in a mode and waits until its configuration exists.
func (n *node) agent(mode, form, more string) {
	n.t.Helper()
	n.write("weft.yaml",
		fmt.Sprintf("node: n1\nsocket: %s\nstateDir: %s\naddressDir: %s\nnetwork: {mode: %s%s}\ninstall: {confDir: %s}\n",
			n.path("a.sock"), n.path("state"), n.path("addresses"), mode, more, n.path("net.d")))
	cmd := exec.Command(filepath.Join(nettest.Programs(n.t), "weft-agent"), "agent", "--config", n.path("weft.yaml"))
	cmd.Stderr = n.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	n.stop = func() { _ = cmd.Process.Signal(syscall.SIGTERM); <-ended; n.stop = func() {} }
	n.t.Cleanup(func() { n.stop() })
	for range 2400 {
		if _, err := os.Stat(n.path("net.d/" + form)); err == nil {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	n.t.Fatalf("no %s", form)
}

// containerd returns the library, configured as by the CRI plugin.
func (n *node) containerd() gocni.CNI {
	n.t.Helper()
	c, err := gocni.New(gocni.WithMinNetworkCount(2), gocni.WithPluginConfDir(n.path("net.d")),
		gocni.WithPluginMaxConfNum(1),
		gocni.WithPluginDir([]string{n.path("bin")}), gocni.WithInterfacePrefix("eth"))
	if err == nil {
		err = c.Load(gocni.WithLoNetwork, gocni.WithDefaultConf)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// TestContainerd: containerd's library attaches and detaches pods with both kinds of configurations that an agent
// writes; without the agent it gets an error, and a DEL is not lost.
func TestContainerd(t *testing.T) {
	const bridge = `{"cniVersion":"0.4.0","name":"theirs","plugins":[{"type":"bridge","bridge":"br0","isGateway":true,
		"ipam":{"type":"host-local","subnet":"10.7.0.0/24"}},{"type":"portmap","capabilities":{"portMappings":true}}]}`
	for _, x := range []struct {
		mode, form, more, name string
		status                 bool // the runtime calls STATUS: only a list has cniVersions
	}{
		{"cluster", "00-weft.conflist", ", podCIDRs: [10.7.0.0/24]", "weft", true},
		{"multus", "00-multus.conf", "", "theirs", false},
	} {
		t.Run(x.mode, func(t *testing.T) {
			n := newNode(t)
			if x.mode == "multus" {
				n.write("net.d/10-theirs.conflist", bridge)
			}
			n.agent(x.mode, x.form, x.more)
			c := n.containerd()
			if err := c.Status(); err != nil {
				t.Fatalf("status: %v", err)
			}
			if got := c.GetConfig().Networks[1].Config.Name; got != x.name {
				t.Errorf("network %q", got)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			pod := nettest.NS(t, "pod")
			labels := gocni.WithLabels(map[string]string{
				"IgnoreUnknown": "1", "K8S_POD_NAMESPACE": "default", "K8S_POD_NAME": "web", "K8S_POD_INFRA_CONTAINER_ID": "c1",
				"K8S_POD_UID": "u1",
			})
			ports := gocni.WithCapabilityPortMap([]gocni.PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}})
			r, err := c.Setup(ctx, "c1", pod.Path(), labels, ports)
			if err != nil {
				t.Fatal(err)
			}
			if ips := r.Interfaces["eth0"]; ips == nil || len(ips.IPConfigs) != 1 ||
				!strings.HasPrefix(ips.IPConfigs[0].IP.String(), "10.7.0.") {
				t.Errorf("%+v", r.Interfaces)
			}
			if rules := nettest.Run(t, nil, "nft", "list", "ruleset"); !strings.Contains(rules, "8080") {
				t.Errorf("no host port: %s", rules)
			}
			n.stop()
			if err := c.Status(); (err != nil) != x.status {
				t.Errorf("status without an agent: %v", err)
			}
			if _, err := c.Setup(ctx, "c2", nettest.NS(t, "pod2").Path()); err == nil ||
				!strings.Contains(err.Error(), "weft agent does not answer") {
				t.Errorf("setup without an agent: %v", err)
			}
			if err := c.Remove(ctx, "c1", pod.Path(), labels, ports); err != nil {
				t.Errorf("remove: %v", err)
			}
			n.agent(x.mode, x.form, x.more)
			for range 2400 {
				if !strings.Contains(nettest.Run(t, nil, "nft", "list", "ruleset"), "8080") {
					return
				}
				time.Sleep(25 * time.Millisecond)
			}
			t.Error("the DEL was lost")
		})
	}
}
