// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// leaver is a node with weft's own network, and with what was there before it.
type leaver struct {
	*podnets
	config string
}

func newLeaver(t *testing.T, design string) *leaver {
	t.Helper()
	nettest.Need(t, "vxlan")
	l := &leaver{podnets: newPodnets(t)}
	for _, dir := range []string{"net.d", "bin"} {
		if err := os.Mkdir(l.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.write("bin/host-local", "#!/bin/sh\n", 0o755)
	l.write("bin/bridge", "#!/bin/sh\n", 0o755)
	for i, addr := range []string{"10.99.0.1", "10.99.0.2"} {
		l.object(fmt.Sprint("node-", i), map[string]any{
			"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": fmt.Sprint("n", i+1)},
			"spec":   map[string]any{"podCIDR": fmt.Sprintf("10.42.%d.0/24", i), "podCIDRs": []any{fmt.Sprintf("10.42.%d.0/24", i)}},
			"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": addr}}},
		})
	}
	nettest.Run(t, l.node, "ip", "addr", "add", "10.99.0.1/24", "dev", "up0")
	nettest.Run(t, l.node, "ip", "route", "add", "10.98.0.0/24", "via", "10.99.0.9")
	nettest.Run(t, l.node, "nft", "add", "table", "inet", "theirs")
	nettest.Run(t, l.node, "sysctl", "-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0",
		"net.netfilter.nf_conntrack_acct=0")
	l.config = l.path("weft.yaml")
	l.write("weft.yaml", fmt.Sprintf(`{node: n1, socket: %q, stateDir: %q, storeDir: %q, addressDir: %q,
		network: {mode: cluster, name: pods, design: %s, encapsulation: vxlan, wireguardKeyFile: %q},
		install: {confDir: %q, binDir: %q}, observe: {level: flows}}`, l.socket(), l.path("run", "weft"), l.store, l.path("addresses"), design,
		l.path("run", "key"), l.path("net.d"), l.path("bin")), 0o644)
	l.args = []string{"--config", l.config, "--state-dir", l.path("run", "weft")}
	return l
}

func (l *leaver) write(name, text string, mode os.FileMode) {
	l.t.Helper()
	if err := os.WriteFile(l.path(name), []byte(text), mode); err != nil {
		l.t.Fatal(err)
	}
}

// all is everything on the node that weft may change.
func (l *leaver) all() string {
	l.t.Helper()
	var text string
	for line := range strings.Lines(l.host()) {
		// The caller's cache, and the kernel's search for the other node, which does not exist.
		if !strings.HasPrefix(line, "file "+l.path("cache")) && !strings.HasPrefix(line, "10.99.0.2 ") {
			text += line
		}
	}
	text += nettest.Run(l.t, l.node, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
		"net.netfilter.nf_conntrack_acct")
	for _, dir := range []string{"net.d", "bin", "addresses", "run"} {
		out, _ := exec.Command("find", l.path(dir), "-printf", "%p %l\n").Output()
		text += string(out)
	}
	return text
}

// settledAll returns all once the agent has written what it writes after its start.
func (l *leaver) settledAll() string {
	l.t.Helper()
	now, since := l.all(), time.Now()
	l.until("rest after the agent's start", func() bool {
		if next := l.all(); next != now {
			now, since = next, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
	return now
}

// conflist waits for the agent's configuration.
func (l *leaver) conflist() *libcni.NetworkConfigList {
	l.t.Helper()
	path := l.path("net.d", "00-weft.conflist")
	l.until("the configuration", func() bool { _, err := os.Stat(path); return err == nil })
	list, err := libcni.NetworkConfFromFile(path)
	if err != nil {
		l.t.Fatal(err)
	}
	return list
}

// clean runs weft clean on the node.
func (l *leaver) clean(args ...string) (string, error) {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"),
		append([]string{"clean", "--from", "weft", "--config", l.config}, args...)...)
	var out []byte
	err := l.node.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	return string(out), err
}

// until waits for a condition.
func (l *leaver) until(what string, ok func() bool) {
	l.t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			l.t.Fatalf("no %s: %s", what, l.log())
		}
	}
}

// pod makes the namespace of a pod, which end or the end of the test removes.
func pod(t *testing.T) *netns.NS {
	t.Helper()
	ns, err := netns.New(filepath.Join(t.TempDir(), "pod"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close(); _ = netns.Remove(ns.Path()) })
	return ns
}

func end(t *testing.T, ns *netns.NS) {
	t.Helper()
	if err := errors.Join(ns.Close(), netns.Remove(ns.Path())); err != nil {
		t.Fatal(err)
	}
}

// killed kills weft clean after a while, and reports whether it had not ended before.
func (l *leaver) killed(after time.Duration) bool {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"), "clean", "--from", "weft", "--config", l.config)
	if err := l.node.Do(cmd.Start); err != nil {
		l.t.Fatal(err)
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	return cmd.Wait() != nil
}

// TestUninstall: weft leaves a node as it was: with a bridge and with routed pods, a tunnel to another node, replaced and
// added programs, settings. A dry run lists what is removed, and changes nothing; with an agent nothing is removed. Pods
// that run keep their network, and what the runtime stops them by; when they are gone the rest goes, too, also if the removal is killed at any moment.
func TestUninstall(t *testing.T) {
	for _, design := range []string{"routed", "bridge"} {
		t.Run(design, func(t *testing.T) {
			l := newLeaver(t, design)
			before := l.all()
			bin := os.Getenv(binVar)
			if out, err := exec.Command(filepath.Join(bin, "weft"), "install", "--from", bin, "--cni-bin-dir", l.path("bin"),
				"--plugins", "--replace-foreign").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			l.start()
			list := l.conflist()
			gone, stays := pod(t), pod(t)
			for id, ns := range map[string]string{"gone": gone.Path(), "stays": stays.Path()} {
				if _, err := l.cni.AddNetworkList(l.ctx(), list, &libcni.RuntimeConf{ContainerID: id, NetNS: ns, IfName: "eth0"}); err != nil {
					t.Fatalf("%v: %s", err, l.log())
				}
			}
			l.until("the tunnel", func() bool { return strings.Contains(l.host(), "10.42.1.0") })
			now := l.settledAll()
			tried, err := l.clean("--dry-run")
			if diff := l.reads(l.all, now); err != nil || diff != "" {
				t.Fatalf("a dry run: %v, %s\n%s", err, tried, diff)
			}
			for _, want := range []string{
				"00-weft.conflist", "weft-cni", "bridge.weft-original, again bridge", "route 10.42.1.0/24", "nft table inet weft-mesh",
				"link flannel", "net/ipv4/ip_forward",
			} {
				if !strings.Contains(tried, want) {
					t.Errorf("a dry run does not list %s:\n%s", want, tried)
				}
			}
			out, err := l.clean()
			if diff := l.reads(l.all, now); err == nil || !strings.Contains(out, "an agent runs on this node") || diff != "" {
				t.Fatalf("with an agent: %v, %s\n%s", err, out, diff)
			}
			l.kill() // nothing is finished in order
			end(t, gone)
			out, err = l.clean()
			if err != nil || !strings.Contains(out, "waiting for pods: 1 (container stays)") {
				t.Fatalf("with a pod: %v, %s", err, out)
			}
			some := l.all()
			for _, want := range []string{"00-weft.conflist", "weft-cni", "ledger.db"} {
				if !strings.Contains(some, want) {
					t.Errorf("a pod has no %s any more:\n%s", want, some)
				}
			}
			for _, bad := range []string{"flannel.1", "10.42.1.0", "weft-mesh", "weft-policy"} {
				if strings.Contains(some, bad) {
					t.Errorf("there still is %s:\n%s", bad, some)
				}
			}
			// The runtime stops pods with it, and must not ask for the state of a network without an agent.
			if c := l.conflist(); c.CNIVersion != "1.0.0" || len(c.Plugins) != 1 {
				t.Errorf("the configuration that stays has version %s: %s", c.CNIVersion, c.Bytes)
			}
			nettest.Run(t, stays, "ping", "-n", "-c1", "-W20", "10.99.0.1")
			if err := l.del(list, "stays", stays); err != nil { // queued
				t.Fatal(err)
			}
			end(t, stays)
			for kills := 0; l.killed(time.Duration(kills) * 5 * time.Millisecond); kills++ {
			}
			if out, err = l.clean("--wait"); err != nil || !strings.HasSuffix(out, "clean\n") {
				t.Fatalf("without pods: %v, %s", err, out)
			}
			if diff := l.reads(l.all, before); diff != "" { // the kernel deletes the links of a namespace asynchronously
				t.Error(diff)
			}
			if out, err = l.clean(); err != nil || out != "0 objects removed\n" {
				t.Errorf("again: %v, %s", err, out)
			}
		})
	}
}
