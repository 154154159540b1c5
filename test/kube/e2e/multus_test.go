// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Vendor is another vendor's network, to which weft adds networks.
type Vendor struct {
	cni     string // name in test/kube/cluster
	file    string // its configuration file
	network string // its network name
	link    string // the text in the file after which an MTU is inserted
}

// MultusConf is the part of 00-multus.conf that the test reads.
type MultusConf struct {
	Type         string
	Capabilities map[string]bool
	Delegates    []json.RawMessage
}

// TestMultus: deploy/weft-multus.yaml with the reference bridge chain and with flannel. Pods have the vendor's network
// and additional ones, 00-multus.conf is always complete and follows the vendor's file, and running pods keep working
// without the agent.
func TestMultus(t *testing.T) {
	weft(t)
	for _, v := range []Vendor{
		{"reference", "10-reference.conflist", "reference", `"type": "bridge"`},
		{"flannel", "10-flannel.conflist", "cbr0", `"isDefaultGateway": true`},
	} {
		t.Run(v.cni, func(t *testing.T) {
			c := newCluster(t, "e2emul", "--cni", v.cni, "--multus")
			before := map[string]string{}
			for _, n := range c.nodes(t) {
				before[n] = c.attachments(t, n)
			}
			ns := c.namespace(t)
			c.apply(t, ns, moreNetworks)
			c.apply(t, ns, deployment("web", 2)+podOn("one", "node1", "wide, local")+podOn("two", "node2", "wide, local"))
			c.allReady(t, ns, 4, 2*time.Minute)
			c.testOverVendor(t, ns, v)
			c.testFollows(t, ns, v)
			c.testWithoutAgent(t, ns)
			c.kubectl(t, "-n", ns, "delete", "deployment,pod", "--all", "--timeout=120s")
			eventually(t, 30*time.Second, func() error {
				for n, want := range before {
					if got := c.attachments(t, n); got != want {
						return fmt.Errorf("%s has %s, before it had %s", n, got, want)
					}
				}
				return nil
			})
		})
	}
}

// newCluster creates another cluster for one test.
func newCluster(t *testing.T, name string, args ...string) Cluster {
	t.Helper()
	c := Cluster{name: name, cni: "weft"}
	down := func() {
		if out, err := c.call(context.Background(), "", "down", "--name", name); err != nil {
			t.Errorf("%v%s", err, out)
		}
	}
	down() // remove what a killed run has left
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := c.call(ctx, "", append([]string{"up", "--name", name}, args...)...); err != nil {
		t.Fatalf("%v%s", err, out)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := c.call(context.Background(), "", "logs", "--name", name)
			file := filepath.Join(os.TempDir(), "weft-"+name+"-logs")
			_ = os.WriteFile(file, []byte(logs), 0o600)
			t.Log("the cluster's logs are in", file)
		}
		if os.Getenv("WEFT_E2E_KEEP") != "" {
			t.Logf("the cluster continues: WEFT_E2E_CLUSTER=%[1]s uses it, test/kube/cluster down --name %[1]s removes it", name)
			return
		}
		down()
	})
	return c
}

// path returns the host's path of a file in a node's configuration directory.
func (c Cluster) path(node, file string) string {
	top := os.Getenv("WEFT_KUBE_STATE")
	if top == "" {
		top = filepath.Join(os.TempDir(), "weft-kube")
	}
	return filepath.Join(top, c.name, node, "etc-cni", "net.d", file)
}

// multusConf reads 00-multus.conf.
func (c Cluster) multusConf(node string) (MultusConf, error) {
	var f MultusConf
	b, err := os.ReadFile(c.path(node, "00-multus.conf"))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	return f, err
}

// testOverVendor: the pods' primary network is the vendor's with all its features, in addition to the other networks.
func (c Cluster) testOverVendor(t *testing.T, ns string, v Vendor) {
	t.Helper()
	f, err := c.multusConf("node1")
	if err != nil || f.Type != "weft-cni" || len(f.Delegates) != 1 || !f.Capabilities["portMappings"] {
		t.Fatalf("00-multus.conf: %+v, %v", f, err)
	}
	wide := map[string]string{}
	pods := c.pods(t, ns)
	for _, p := range pods {
		eventually(t, 10*time.Second, func() error {
			_, err := c.dial(pods[0], "http", p.Status.PodIP, 8080)
			return err
		})
		if strings.HasPrefix(p.Metadata.Name, "web-") {
			continue
		}
		all := p.networks(t)
		if len(all) != 3 || all[0].Name != v.network || all[0].Interface != "eth0" || all[0].IPs[0] != p.Status.PodIP ||
			all[1].Interface != "net1" || all[2].Interface != "net2" {
			t.Fatalf("%s has the networks %+v, want eth0 of %s, net1 and net2", p.Metadata.Name, all, v.network)
		}
		wide[p.Metadata.Name] = all[1].IPs[0]
	}
	c.expectConnection(t, ns, wide["two"])
	c.apply(t, ns, `
apiVersion: v1
kind: Pod
metadata: {name: port}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: `+agnhost+`, args: [netexec, --http-port=8080], ports: [{containerPort: 8080, hostPort: 18080}]}]
`)
	eventually(t, 30*time.Second, func() error {
		out, err := c.fetch("control", "http://"+c.nodeIP(t, "node1")+":18080/hostname")
		if err == nil && out != "port" {
			return fmt.Errorf("answer %q", out)
		}
		return err
	})
}

// expectConnection checks that the pod one reaches this address of the pod two.
func (c Cluster) expectConnection(t *testing.T, ns, address string) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		out, err := c.try("kubectl", "-n", ns, "exec", "one", "--", "curl", "-sS", "-m", "3",
			"http://"+address+":8080/hostname")
		if err == nil && out != "two" {
			return fmt.Errorf("%s is %q", address, out)
		}
		return err
	})
}

// testFollows: the vendor's file is rewritten several times, not atomically; 00-multus.conf follows, is never missing
// and always complete.
func (c Cluster) testFollows(t *testing.T, ns string, v Vendor) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if _, err := c.multusConf("node1"); err != nil {
				watched <- fmt.Errorf("00-multus.conf while %s changes: %w", v.file, err)
				return
			}
		}
		watched <- nil
	}()
	old, err := os.ReadFile(c.path("node1", v.file))
	if err != nil {
		t.Fatal(err)
	}
	mtu := ""
	for i := range 5 {
		mtu = fmt.Sprint(1400 + i)
		text := strings.Replace(string(old), v.link, v.link+`, "mtu": `+mtu, 1)
		half, err := os.Create(c.path("node1", v.file))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = half.WriteString(text[:len(text)/2])
		time.Sleep(300 * time.Millisecond)
		_, _ = half.WriteString(text[len(text)/2:])
		if err := half.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		eventually(t, 5*time.Second, func() error {
			f, err := c.multusConf("node1")
			if err == nil && !strings.Contains(string(f.Delegates[0]), mtu) {
				return fmt.Errorf("00-multus.conf has no MTU of %s: %s", mtu, f.Delegates[0])
			}
			return err
		})
		t.Logf("00-multus.conf follows after %s", time.Since(began).Round(100*time.Millisecond))
	}
	stop()
	if err := <-watched; err != nil {
		t.Error(err)
	}
	c.apply(t, ns, podOn("new", "node1", ""))
	c.kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/new", "--timeout=60s")
	if out := c.kubectl(t, "-n", ns, "exec", "new", "--", "cat",
		"/sys/class/net/eth0/mtu"); strings.TrimSpace(out) != mtu {
		t.Errorf("a new pod has an MTU of %s, want %s", out, mtu)
	}
}

// testWithoutAgent: the DaemonSet is deleted. Running pods keep working, one is deleted; when weft is back, the missed
// DEL is done.
func (c Cluster) testWithoutAgent(t *testing.T, ns string) {
	t.Helper()
	var two Pod
	c.get(t, &two, "pod", "two", "-n", ns)
	wide := two.networks(t)[1].IPs[0]
	c.kubectl(t, "-n", "kube-system", "delete", "daemonset", "weft", "--timeout=60s")
	c.kubectl(t, "-n", "kube-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=weft", "--timeout=60s")
	c.expectConnection(t, ns, two.Status.PodIP)
	c.expectConnection(t, ns, wide)
	if _, err := c.multusConf("node1"); err != nil {
		t.Errorf("00-multus.conf without the agent: %v", err)
	}
	c.kubectl(t, "-n", ns, "delete", "pod", "new", "--timeout=60s")
	c.apply(t, ns, podOn("late", "node1", "wide"))
	time.Sleep(3 * time.Second)
	for _, p := range c.pods(t, ns) {
		if p.ready() == (p.Metadata.Name == "late") || len(p.Status.ContainerStatuses) > 0 &&
			p.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("without the agent, %s is %+v", p.Metadata.Name, p.Status)
		}
	}
	c.kubectl(t, "apply", "-f", "../../../deploy/weft-multus.yaml")
	c.weftReady(t)
	c.allReady(t, ns, 6, 2*time.Minute)
	c.expectConnection(t, ns, wide)
}
