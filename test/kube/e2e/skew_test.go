// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestVersionSkew: a cluster of the version before is upgraded in the documented order (kinds, controller, agents), by
// weft cluster, and rolled back in the reverse order without the kinds. After each step new pods of both nodes
// get addresses from a pool and reach each other, and through all of them no datagram between two pods is lost and their
// connections continue.
func TestVersionSkew(t *testing.T) {
	weft(t)
	old := previous(t)
	s := newSkew(t, old)
	s.step("kinds of today, all else of the version before", func() { s.kubectl("apply", "-f", "../../../deploy/crds.yaml") })
	s.step("controller and objects of today, agents of the version before", func() {
		s.manifest("../../../deploy/weft.yaml", map[string]string{"DaemonSet": "previous"})
	})
	s.step("all of today, by weft cluster", func() { // which takes over what kubectl has installed
		s.c.must(t, "exec", "control", weftCluster(s.t), "install", "--set", "image.tag=dev", "--values", s.values())
	})
	s.step("agents of the version before", func() { s.image("daemonset/weft", "previous") })
	s.step("controller of the version before", func() { s.image("deployment/weft-controller", "previous") })
	s.step("agents of today, controller of the version before", func() { s.image("daemonset/weft", "dev") })
	s.finish()
}

// previous returns the directory with the image and the manifests of the version before.
func previous(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../upgrade/build.sh", "--image").Output()
	if err != nil {
		nettest.SkipMissing(t, fmt.Sprintf("test/upgrade/build.sh --image: %v", err))
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// skew is a cluster with weft of two versions, and two pods that send to each other.
type skew struct {
	t     *testing.T
	c     Cluster
	ns    string
	at    map[string]string // the senders' addresses by their nodes
	lost  uint64
	steps int
}

// pool is in the cluster's configuration: agents, controller and kinds of both versions work on its blocks.
const pool = `{cidr: 10.77.0.0/20, blockSize: 28, encapsulation: vxlan}`

func newSkew(t *testing.T, old string) *skew {
	t.Helper()
	s := &skew{t: t, c: newCluster(t, "skew", "--cni", "none", "--no-dns"), at: map[string]string{}}
	for _, file := range []string{filepath.Join(old, "weft-image.tar"), "../../../bin/weft-image.tar"} {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		s.c.must(t, "load", path)
	}
	s.kubectl("create", "-f", filepath.Join(old, "deploy", "nad-crd.yaml"))
	s.kubectl("apply", "-f", filepath.Join(old, "deploy", "crds.yaml"))
	s.manifest(filepath.Join(old, "deploy", "weft.yaml"), map[string]string{"DaemonSet": "previous", "Deployment": "previous"})
	s.ready()
	s.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
	s.ns = s.c.namespace(t)
	for _, node := range []string{"node1", "node2"} {
		s.c.apply(t, s.ns, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "localhost/weft-traffic:test", readinessProbe: {httpGet: {path: /report, port: 8080}, periodSeconds: 1}}]
`, node))
	}
	for _, p := range s.c.allReady(t, s.ns, 2, 2*time.Minute) {
		s.at[p.Spec.NodeName] = p.Status.PodIP
		s.route(p)
	}
	for node, peer := range map[string]string{"node1": "node2", "node2": "node1"} {
		s.c.request(t, s.at[node], "PUT", "peer", s.at[peer]+":7000")
		s.c.request(t, s.at[node], "PUT", "stream", s.at[peer]+":7000")
	}
	for node := range s.at { // both send: what was sent before the peer listened does not count
		eventually(t, time.Minute, func() error {
			if r := s.c.report(t, s.at[node]); r.Received == 0 {
				return fmt.Errorf("%s receives nothing", node)
			}
			return nil
		})
		s.c.request(t, s.at[node], "DELETE", "report", "")
	}
	return s
}

func (s *skew) kubectl(args ...string) {
	s.t.Helper()
	if args[1] == "-f" && !filepath.IsAbs(args[2]) {
		path, err := filepath.Abs(args[2])
		if err != nil {
			s.t.Fatal(err)
		}
		args[2] = path
	}
	s.c.kubectl(s.t, args...)
}

// route makes the control plane's namespace, which is a host outside of the cluster, reach a pod.
func (s *skew) route(p Pod) {
	s.t.Helper()
	s.c.must(s.t, "exec", "control", "ip", "route", "replace", p.Status.PodIP, "via", s.c.nodeIP(s.t, p.Spec.NodeName))
}

// manifest applies all objects of a file with the pool in the configuration, and images with a tag by the kind of object;
// others have today's.
func (s *skew) manifest(file string, tags map[string]string) {
	s.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	const network = "      mode: cluster\n"
	if strings.Count(string(b), network) != 1 {
		s.t.Fatalf("%s has no %q", file, network)
	}
	text := strings.Replace(string(b), network, network+"      pools:\n      - "+pool+"\n", 1)
	objects := strings.Split(text, "\n---\n")
	for kind, tag := range tags {
		for i, object := range objects {
			if strings.Contains("\n"+object, "\nkind: "+kind+"\n") {
				objects[i] = strings.ReplaceAll(object, "localhost/weft:dev", "localhost/weft:"+tag)
			}
		}
	}
	s.c.apply(s.t, "kube-system", strings.Join(objects, "\n---\n"))
}

// values writes the values with which the release keeps the cluster's pool.
func (s *skew) values() string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("config: {network: {pools: ["+pool+"]}}\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *skew) image(workload, tag string) {
	s.t.Helper()
	s.c.kubectl(s.t, "-n", "kube-system", "set", "image", workload, "*=localhost/weft:"+tag)
}

// ready waits until agents and controller are those of their objects.
func (s *skew) ready() {
	s.t.Helper()
	s.c.weftReady(s.t)
	s.c.kubectl(s.t, "-n", "kube-system", "rollout", "status", "deployment/weft-controller", "--timeout=180s")
}

// step takes a step; then pods start on both nodes and reach each other, and the traffic has lost nothing.
func (s *skew) step(name string, take func()) {
	s.t.Helper()
	began := time.Now()
	take()
	s.ready()
	took := time.Since(began).Round(time.Second)
	s.steps++
	web := fmt.Sprint("step", s.steps)
	pods := slices.DeleteFunc(s.c.rollOut(s.t, s.ns, web, 2), func(p Pod) bool {
		return !strings.HasPrefix(p.Metadata.Name, web)
	})
	if len(pods) != 2 {
		s.t.Fatalf("%s: %d pods, want 2", name, len(pods))
	}
	for _, p := range pods {
		if !strings.HasPrefix(p.Status.PodIP, "10.77.") {
			s.t.Errorf("%s: pod %s has %s, want an address of the pool", name, p.Metadata.Name, p.Status.PodIP)
		}
		s.route(p)
	}
	for i, p := range pods {
		eventually(s.t, 30*time.Second, func() error {
			_, err := s.c.dial(p, "http", pods[1-i].Status.PodIP, 8080)
			return err
		})
	}
	// This waits until DEL has been done.
	s.c.kubectl(s.t, "-n", s.ns, "delete", "deployment", web, "--cascade=foreground", "--timeout=120s")
	received, lost, dropped, answers := uint64(0), uint64(0), uint64(0), uint64(0)
	for node, addr := range s.at {
		r := s.c.report(s.t, addr)
		received, lost, dropped, answers = received+r.Received, lost+r.Lost, dropped+r.Dropped, answers+r.Stream.Answers
		if r.Stream.Error != "" {
			s.t.Errorf("%s: the connection of %s ended: %s", name, node, r.Stream.Error)
		}
	}
	s.t.Logf("%s: %s; %d datagrams received so far, %d lost in this step (so far %d in the receivers' own buffers), %d answers over TCP",
		name, took, received, lost-s.lost, dropped, answers)
	if lost > s.lost && dropped == 0 {
		s.t.Errorf("%s: %d datagrams lost", name, lost-s.lost)
	}
	s.lost = lost
}

// finish checks that both directions were in use to the end.
func (s *skew) finish() {
	s.t.Helper()
	for node, addr := range s.at {
		r := s.c.report(s.t, addr)
		if r.Received < 1000 || r.Stream.Answers < 100 || r.Refused > 0 {
			s.t.Errorf("%s: %+v", node, r)
		}
	}
}
