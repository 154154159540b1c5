// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestInstall: a new user installs weft with weft cluster in a cluster without a network. It says why an image that does
// not exist is not ready; with the right one nodes become ready and pods reach each other. A change of the configuration
// replaces the agents, while pods reach each other, and lets them serve flows. The removal leaves nodes and API as they were before the installation;
// pods of the network are counted, and keep it.
func TestInstall(t *testing.T) {
	kube(t)
	program := weftCluster(t)
	c := bareCluster(t, "inst")
	weft := func(args ...string) (string, error) {
		return c.try("exec", append([]string{"control", program}, args...)...)
	}
	for _, node := range []string{"node1", "node2"} {
		c.must(t, "exec", node, "sysctl", "-qw", "net.ipv4.ip_forward=0")
	}
	ns := c.namespace(t)
	before := c.settledSnapshot(t)
	_, err := weft("install", "--set", "image.tag=nosuch", "--set", "image.pullPolicy=Never", "--timeout", "20s")
	if err == nil || !strings.Contains(err.Error(), "ErrImageNeverPull") || !strings.Contains(err.Error(), " on node") {
		t.Errorf("an image that does not exist: %v", err)
	}
	if out, err := weft("status"); err == nil || !strings.Contains(out+fmt.Sprint(err), "ErrImageNeverPull") {
		t.Errorf("its status: %s%v", out, err)
	}
	began := time.Now()
	if out, err := weft("upgrade", "--set", "image.tag=dev"); err != nil || !strings.Contains(out, "weft is installed (revision 2)") {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	t.Logf("from weft cluster upgrade to ready nodes: %.1f s", time.Since(began).Seconds())
	if out, err := weft("status"); err != nil {
		t.Errorf("status: %s%v", out, err)
	}
	out, err := c.try("exec", "control", "timeout", "--signal=INT", "--preserve-status", "5", program, "status", "--watch")
	if err != nil || strings.Count(out, "pods are ready") != 2 {
		t.Errorf("status --watch: %s%v", out, err)
	}
	pods := c.rollOut(t, ns, "web", 2)
	t.Logf("to two ready pods: %.1f s", time.Since(began).Seconds())
	reach := func() error {
		_, err := c.dial(pods[0], "http", pods[1].Status.PodIP, 8080)
		return err
	}
	eventually(t, 30*time.Second, reach)
	agents := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft", "-o", "name")
	done := make(chan error, 1)
	go func() {
		_, err := weft("upgrade", "--set", "config.logLevel=debug", "--set", "config.observe.listen=:9443")
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if err := reach(); err != nil {
				t.Fatalf("while agents are replaced: %v", err)
			}
		}
	}
	after := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft", "-o", "name")
	for name := range strings.FieldsSeq(agents) {
		if strings.Contains(after, name) {
			t.Errorf("%s was not replaced", name)
		}
	}
	c.listener(t, ns, pods)
	c.leaves(t, weft, func() string { return changes(before, c.snapshot(t)) }, ns, pods)
	c.abandoned(t, weft, before)
}

// abandoned: the kubelet of a node does not run while weft is removed. weft is removed from the cluster and the other node,
// and prints what to type on this one, which removes the rest when the kubelet runs again.
func (c Cluster) abandoned(t *testing.T, weft func(...string) (string, error), before string) {
	t.Helper()
	if out, err := weft("install", "--set", "image.tag=dev", "--set", "image.pullPolicy=Never"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	back := once(func() { c.must(t, "exec", "node2", "pkill", "-CONT", "-x", "kubelet") })
	c.must(t, "exec", "node2", "pkill", "-STOP", "-x", "kubelet")
	t.Cleanup(back)
	out, err := weft("uninstall", "--yes", "--timeout", "20s")
	if err == nil || !strings.Contains(err.Error(), "weft is not removed from all nodes: node2") {
		t.Fatalf("a removal from a node that does not answer: %s%v", out, err)
	}
	out, err = weft("uninstall", "--yes", "--timeout", "5s", "--abandon-nodes")
	_, typed, found := strings.Cut(out, "type there, as root:\n")
	if err != nil || !found || !strings.Contains(out, "and not from these nodes: node2") {
		t.Fatalf("a removal without a node: %s%v", out, err)
	}
	back()
	eventually(t, 2*time.Minute, func() error { // the kubelet ends what is deleted
		running, err := c.try("exec", "node2", "ctr", "-n", "k8s.io", "tasks", "list", "-q")
		if err == nil && strings.TrimSpace(running) != "" {
			err = errors.New("containers run: " + running)
		}
		return err
	})
	if changes(before, c.snapshot(t)) == "" {
		t.Error("nothing of weft is left on the node: the command is not tested")
	}
	c.must(t, "exec", "node2", "sh", "-c", strings.TrimSpace(typed))
	eventually(t, time.Minute, func() error {
		if left := changes(before, c.snapshot(t)); left != "" {
			return fmt.Errorf("the command left or changed (- before, + after):\n%s", left)
		}
		return nil
	})
}

// bareCluster starts a cluster without a network, whose nodes have weft's image.
func bareCluster(t *testing.T, name string) Cluster {
	t.Helper()
	c := Cluster{name: name, cni: "weft"}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := c.call(ctx, "", "up", "--name", c.name, "--cni", "none", "--no-dns"); err != nil {
		t.Fatalf("%v%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := c.call(context.Background(), "", "down", "--name", c.name); err != nil {
			t.Errorf("%v%s", err, out)
		}
	})
	c.must(t, "load", image(t))
	return c
}

// weftCluster builds weft-cluster.
func weftCluster(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "weft-cluster")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", program, "../../../cmd/weft-cluster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// image is the archive of weft's image.
func image(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/weft-image.tar")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// leaves removes weft: with pods of the network, which keep it, and without.
func (c Cluster) leaves(t *testing.T, weft func(...string) (string, error), before func() string, ns string, pods []Pod) {
	t.Helper()
	if out, err := weft("uninstall"); err == nil || !strings.Contains(err.Error(), "2 pods run with a network of their own ("+ns+" 2)") ||
		!strings.Contains(err.Error(), "add --yes: the standard input is no terminal") {
		t.Errorf("a removal without a question: %s%v", out, err)
	}
	out, err := weft("uninstall", "--dry-run")
	for _, want := range []string{
		"node node1", "/etc/cni/net.d/00-weft.conflist", "/opt/cni/bin/weft-cni", "nft table inet weft-mesh", "DaemonSet kube-system/weft",
		"of Node node2", "kind addresspools.weft.dev, with ", "2 pods keep their network: " + ns + " 2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run does not list %s: %v\n%s", want, err, out)
		}
	}
	out, err = weft("uninstall", "--yes")
	if err == nil || !strings.Contains(fmt.Sprint(out, err), "node1: waiting for pods: 1 ("+ns+"/web-") ||
		!strings.Contains(fmt.Sprint(out, err), "node2: waiting for pods: 1 ("+ns+"/web-") {
		t.Fatalf("a removal with pods: %s%v", out, err)
	}
	for _, p := range pods {
		c.must(t, "exec", p.Spec.NodeName, "ping", "-n", "-c1", "-W5", p.Status.PodIP)
		if left := c.must(t, "exec", p.Spec.NodeName, "sh", "-c", "ip route show proto 119; nft list tables"); strings.Contains(left, " via ") ||
			strings.Contains(left, "weft-mesh") || !strings.Contains(left, p.Status.PodIP) {
			t.Errorf("%s has\n%s", p.Spec.NodeName, left)
		}
	}
	// The kubelets asked for the state of the network between the agents' end and the cleaner's begin, perhaps. After that
	// nodes stay ready: others would lose their pods.
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Second) {
		const ready = `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`
		if got := c.kubectl(t, "get", "nodes", "-o", ready); strings.TrimSpace(got) != "True True" {
			t.Fatalf("nodes with pods of the network: Ready is %s", got)
		}
	}
	c.kubectl(t, "-n", ns, "delete", "deployment", "--all", "--cascade=foreground", "--timeout=2m")
	if out, err := weft("uninstall", "--yes"); err != nil || !strings.Contains(out, "weft is removed from the cluster and from 2 nodes") {
		t.Fatalf("a removal without pods: %s%v", out, err)
	}
	if out, err := weft("uninstall", "--yes"); err == nil || !strings.Contains(err.Error(), "weft is not installed by it") {
		t.Errorf("another removal: %s%v", out, err)
	}
	left := ""
	eventually(t, time.Minute, func() error {
		if left = before(); left != "" {
			return fmt.Errorf("weft left or changed (- before, + after):\n%s", left)
		}
		return nil
	})
}

// nodeState prints what weft may change on a node. The runtime itself caches results; /var/lib/calico is that of the host,
// which all nodes of all clusters share.
const nodeState = `find /etc/cni /opt/cni /var/lib/cni /var/lib/weft -not -path '/var/lib/cni/results*' -printf '%y %p %l\n' 2>/dev/null | sort
find /run -xdev -not -path '/run/containerd/*' -not -path '/run/netns/*' -not -path '/run/over/*' -printf '%y %p %l\n' | sort
ip -o link | sed 's/^[0-9]*: //'; ip -o addr | sed 's/^[0-9]*: //'; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule
nft list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
sysctl -a 2>/dev/null | grep -E '^net\.(ipv[46]\.(conf|ip_forward)|bridge)'`

// snapshot returns what is on the nodes and in the API.
func (c Cluster) snapshot(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, node := range []string{"node1", "node2"} {
		for line := range strings.Lines(c.must(t, "exec", node, "sh", "-c", nodeState)) {
			b.WriteString(node + ": " + line)
		}
	}
	kinds := slices.DeleteFunc(strings.Fields(c.kubectl(t, "api-resources", "--verbs=list", "-o", "name")), func(kind string) bool {
		return strings.HasPrefix(kind, "events") // they end by themselves
	})
	for name := range strings.Lines(c.kubectl(t, "get", strings.Join(kinds, ","), "-A", "-o", "name")) {
		if !strings.HasPrefix(name, "lease.coordination.k8s.io/node") { // a kubelet's, which it makes a while after its start
			b.WriteString("api: " + name)
		}
	}
	b.WriteString(c.kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations} {.metadata.labels} {.spec.taints[*].key} `+
		`{.status.conditions[*].type}{"\n"}{end}`))
	return b.String()
}

// settledSnapshot returns the snapshot when Kubernetes has made its own objects of a new cluster and its namespaces.
func (c Cluster) settledSnapshot(t *testing.T) string {
	t.Helper()
	var out string
	eventually(t, 2*time.Minute, func() error {
		last := out
		out = c.snapshot(t)
		if more := changes(last, out); more != "" {
			return errors.New(more)
		}
		return nil
	})
	return out
}

// changes returns the lines that only one of two texts has.
func changes(before, after string) string {
	count := map[string]int{}
	for line := range strings.Lines(after) {
		count[line]++
	}
	for line := range strings.Lines(before) {
		count[line]--
	}
	var out []string
	for line, n := range count {
		if n > 0 {
			out = append(out, "+ "+line)
		} else if n < 0 {
			out = append(out, "- "+line)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// TestInstallMultus: weft cluster install with mode=multus adds networks to the reference plugins'. The removal leaves these
// as they were.
func TestInstallMultus(t *testing.T) {
	weft(t)
	program := weftCluster(t)
	c := newCluster(t, "insmul", "--cni", "reference", "--no-dns")
	run := func(args ...string) (string, error) {
		return c.try("exec", append([]string{"control", program}, args...)...)
	}
	c.must(t, "load", image(t))
	ns := c.namespace(t)
	before := c.settledSnapshot(t)
	if out, err := run("install", "--set", "mode=multus", "--set", "image.tag=dev"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	for _, node := range c.nodes(t) {
		eventually(t, time.Minute, func() error {
			_, err := c.try("exec", node, "test", "-e", "/etc/cni/net.d/00-multus.conf")
			return err
		})
	}
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("one", "node1", "local"))
	pod := c.allReady(t, ns, 1, 2*time.Minute)[0]
	eventually(t, time.Minute, func() error {
		c.get(t, &pod, "pod", "-n", ns, "one")
		if text := pod.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]; !strings.Contains(text, ns+"/local") {
			return fmt.Errorf("network-status: %q", text)
		}
		return nil
	})
	if out, err := run("uninstall", "--yes"); err == nil || !strings.Contains(fmt.Sprint(out, err), "node1: waiting for pods: 1 ("+ns+"/one)") {
		t.Errorf("a removal with a pod: %s%v", out, err)
	}
	if left := c.must(t, "exec", "node1", "ls", "/etc/cni/net.d"); strings.TrimSpace(left) != "10-reference.conflist" {
		t.Errorf("configurations: %s", left)
	}
	c.kubectl(t, "-n", ns, "delete", "pod", "one")
	c.kubectl(t, "-n", ns, "delete", "network-attachment-definitions", "--all")
	if out, err := run("uninstall", "--yes"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	eventually(t, time.Minute, func() error {
		var more string
		for line := range strings.Lines(changes(before, c.snapshot(t))) {
			// host-local's own, of the further network.
			if !strings.Contains(line, "/var/lib/cni/networks") {
				more += line
			}
		}
		if more != "" {
			return fmt.Errorf("weft left or changed (- before, + after):\n%s", more)
		}
		return nil
	})
}
