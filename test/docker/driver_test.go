// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestContainers: containers of one node reach each other, those of the other node and the node, with both families where
// the network has both; removing them leaves nothing.
func TestContainers(t *testing.T) {
	c := newCluster(t, 2, withIPv6)
	for _, h := range c.nodes {
		h.network("pods", "--ipv6", "--subnet", "10.77.0.0/20", "--subnet", "fd77::/112")
		for _, name := range []string{"c1", "c2"} {
			h.docker("run", "-d", "--name", name, "--network", "pods", image, "/bin/sleep", "100000")
		}
	}
	one, two := c.nodes[0], c.nodes[1]
	one.reaches("c1", one.addr("c2", "pods"))
	one.reaches("c1", "192.168.77.1")
	one.reaches("c1", two.addr("c2", "pods"))
	two.reaches("c1", one.addr("c2", "pods"))
	for _, h := range c.nodes {
		if a := h.addr6("c2", "pods"); !strings.HasPrefix(a, "fd77::") {
			t.Fatalf("the container has the IPv6 address %q", a)
		}
	}
	one.reaches("c1", one.addr6("c2", "pods"))
	one.reaches("c1", two.addr6("c2", "pods"))
	two.reaches("c1", one.addr6("c2", "pods"))
	one.network("four")
	one.run("c3", "--network", "four")
	if a := one.addr6("c3", "four"); a != "" {
		t.Errorf("a container of a network without --ipv6 has the address %s", a)
	}
	one.network("both", "--ipv6")
	one.run("c4", "--network", "both")
	two.reaches("c1", one.addr6("c4", "both"))
	one.docker("rm", "-f", "c3", "c4")
	for _, h := range c.nodes {
		h.docker("rm", "-f", "c1", "c2")
		h.clean()
		h.docker("network", "rm", "pods")
	}
}

// run starts a container that sleeps.
func (h *host) run(name string, args ...string) {
	h.t.Helper()
	h.docker(append(append([]string{"run", "-d", "--name", name}, args...), image, "/bin/sleep", "100000")...)
}

// network creates a network of the driver.
func (h *host) network(name string, args ...string) {
	h.t.Helper()
	h.docker(append(append([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft"}, args...), name)...)
}

// TestOptions: a container has the address, the MAC address and the MTU that were asked for, also on several networks,
// and after it was connected and disconnected. What the cluster does not have is refused.
func TestOptions(t *testing.T) {
	c := newCluster(t, 1)
	h := c.nodes[0]
	h.network("pods", "--subnet", "10.77.0.0/20", "-o", "mtu=1300", "-o", "pool=green")
	h.network("second", "-o", "pool=blue")
	h.run("c1", "--network", "pods", "--ip", "10.77.1.7", "--mac-address", "02:42:00:00:00:07")
	h.run("c2", "--network", "second")
	link := h.docker("exec", "c1", "ip", "addr", "show", "eth0")
	for _, want := range []string{"mtu 1300", "02:42:00:00:00:07", "10.77.1.7/32"} {
		if !strings.Contains(link, want) {
			t.Errorf("the container has no %q:\n%s", want, link)
		}
	}
	h.reaches("c2", "10.77.1.7")
	h.docker("network", "connect", "second", "c1")
	h.reaches("c2", h.addr("c1", "second"))
	h.docker("network", "disconnect", "second", "c1")
	h.reaches("c2", "10.77.1.7")

	h.refused([]string{"run", "--rm", "--network", "pods", "--ip", "10.77.1.7", image, "/bin/true"},
		"10.77.1.7", "docker-")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "--subnet", "10.1.0.0/16", "n"},
		"10.1.0.0/16", "green 10.77.0.0/20")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "network=default/none", "n"},
		"there is no NetworkAttachmentDefinition none")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "pool=red", "n"},
		`there is no pool "red"`, "green")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "color=blue", "n"}, "option color")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "--internal", "n"}, "--internal")
	h.refused([]string{"network", "create", "-d", "weft", "--subnet", "10.3.0.0/16", "n"}, "--ipam-driver")
	h.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "mtu=9", "n"}, "option mtu")

	// A network of pods with its own addresses: a bridge of the node.
	c.object(`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition",
		"metadata":{"name":"wire","namespace":"default"},"spec":{"config":"{\"cniVersion\":\"1.0.0\",\"name\":\"wire\",` +
		`\"plugins\":[{\"type\":\"bridge\",\"bridge\":\"wire0\",\"isGateway\":true,\"ipam\":{\"type\":\"host-local\",` +
		`\"dataDir\":\"` + h.path("addresses") + `\",\"ranges\":[[{\"subnet\":\"10.5.0.0/24\"}]]}}]}"}}`)
	h.until("the network is known", func() error {
		_, err := h.try("network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "network=default/wire", "wire")
		return err
	})
	for _, name := range []string{"w1", "w2"} {
		h.run(name, "--network", "wire")
	}
	h.reaches("w1", h.addr("w2", "wire"))
	h.docker("network", "connect", "wire", "c1")
	h.reaches("c1", h.addr("w2", "wire"))
	h.docker("rm", "-f", "w1", "w2")

	// A network of pods without a gateway: the container has no default route that would lead nowhere.
	c.object(`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition",
		"metadata":{"name":"flat","namespace":"default"},"spec":{"config":"{\"cniVersion\":\"1.0.0\",\"name\":\"flat\",` +
		`\"plugins\":[{\"type\":\"bridge\",\"bridge\":\"flat0\",\"ipam\":{\"type\":\"static\",` +
		`\"addresses\":[{\"address\":\"10.6.0.5/24\"}]}}]}"}}`)
	h.until("the network without a gateway is known", func() error {
		_, err := h.try("network", "create", "-d", "weft", "--ipam-driver", "weft", "-o", "network=default/flat", "flat")
		return err
	})
	h.run("f1", "--network", "flat")
	if routes := h.docker("exec", "f1", "ip", "route"); strings.Contains(routes, "default") {
		t.Errorf("a container of a network without a gateway has a default route:\n%s", routes)
	}
	h.docker("rm", "-f", "f1")

	h.agent.end(syscall.SIGKILL)
	begin := time.Now()
	h.refused([]string{"run", "--rm", "--network", "pods", image, "/bin/true"}, "agent")
	if took := time.Since(begin); took > time.Minute { // 5 s on a host that is not busy
		t.Errorf("without an agent the refusal takes %s", took)
	}
	h.docker("rm", "-f", "c1") // its DEL waits for the agent
	h.startAgent()
	h.docker("rm", "-f", "c2")
	h.clean()
	h.docker("network", "rm", "pods", "second", "wire", "flat")
	if files, _ := filepath.Glob(h.path("docker-state", "*", "*")); len(files) > 0 {
		t.Errorf("the driver has kept %s", files)
	}
}

// TestConnectIPv6: a running container of a network without IPv6 is connected to networks with it, disconnected and
// connected again. Each network has its own gateways, and published ports stay so.
func TestConnectIPv6(t *testing.T) {
	c := newCluster(t, 1, withIPv6)
	h := c.nodes[0]
	networks := map[string]string{"one": "green,six", "two": "blue,more6"}
	h.network("four", "-o", "pool=blue")
	for network, pools := range networks {
		h.network(network, "--ipv6", "-o", "pool="+pools)
		h.run("peer-"+network, "--network", network)
	}
	h.serve("c1", "--network", "four", "-p", "8080:80")
	for range 2 {
		for network := range networks {
			h.docker("network", "connect", network, "c1")
		}
		for network := range networks {
			h.reaches("c1", h.addr6("peer-"+network, network))
			h.reaches("peer-"+network, h.addr6("c1", network))
		}
		h.answers("c1", "192.168.77.1:8080")
		for network := range networks {
			h.docker("network", "disconnect", network, "c1")
		}
		h.answers("c1", "192.168.77.1:8080")
	}
	h.docker("rm", "-f", "c1", "peer-one", "peer-two")
	h.clean()
}

// TestPolicy: policies select containers by their labels, on their own node and as peers of another one. Until the labels
// are known nothing passes.
func TestPolicy(t *testing.T) {
	c := newCluster(t, 2)
	one, two := c.nodes[0], c.nodes[1]
	c.object(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"server","namespace":"default"},
		"spec":{"podSelector":{"matchLabels":{"app":"server"}},"policyTypes":["Ingress"],
		"ingress":[{"from":[{"podSelector":{"matchLabels":{"role":"client"}}}]}]}}`)
	for _, h := range c.nodes {
		h.network("pods")
	}
	one.run("server", "--network", "pods", "--label", "app=server")
	server := one.addr("server", "pods")
	for _, h := range c.nodes {
		h.run("client", "--network", "pods", "--label", "role=client", "--label", "org.example.path=/not a label/")
		h.run("other", "--network", "pods")
	}
	for _, h := range c.nodes {
		h.reaches("client", server)
		if out, err := h.try("exec", "other", "ping", "-c1", "-W1", server); err == nil {
			t.Errorf("on %s a container without the label is allowed:\n%s", h.name, out)
		}
		h.reaches("other", two.addr("client", "pods"))
	}

	two.driver.end(syscall.SIGKILL)
	two.apiSocket = two.path("away.sock")
	two.startDriver()
	two.run("late", "--network", "pods", "--label", "role=client")
	two.until("the driver reports that the labels are not known", func() error {
		if text := tail(two.driver.log); !strings.Contains(text, "labels of a container are not known") {
			return errors.New(text)
		}
		return nil
	})
	two.until("the agent reports it", func() error {
		text := tail(two.agent.log)
		if !strings.Contains(text, "labels of a container are not known") || !strings.Contains(text, "away.sock") {
			return errors.New(text)
		}
		return nil
	})
	for _, to := range []string{server, two.addr("client", "pods"), "192.168.77.2"} {
		if out, err := two.try("exec", "late", "ping", "-c1", "-W1", to); err == nil {
			t.Errorf("before its labels are known a container reaches %s:\n%s", to, out)
		}
	}
	two.driver.end(syscall.SIGKILL)
	two.apiSocket = ""
	two.startDriver()
	two.reaches("late", server)
}

// TestKilled: containers stay connected while the driver, the agent or dockerd is killed and started again, and what is
// removed afterwards leaves nothing.
func TestKilled(t *testing.T) {
	c := newCluster(t, 1)
	h := c.nodes[0]
	h.dockerd.end(syscall.SIGTERM)
	h.startDockerd("--live-restore")
	h.network("pods")
	for _, name := range []string{"c1", "c2", "c3"} {
		h.run(name, "--network", "pods")
	}
	h.reaches("c1", h.addr("c2", "pods"))
	for _, p := range []struct {
		name  string
		of    **process
		start func()
	}{
		{"driver", &h.driver, h.startDriver},
		{"agent", &h.agent, h.startAgent},
		{"dockerd", &h.dockerd, func() { h.startDockerd("--live-restore") }},
	} {
		to := h.addr("c2", "pods")
		(*p.of).end(syscall.SIGKILL)
		if p.name != "dockerd" {
			h.reaches("c1", to)
		}
		p.start()
		h.reaches("c1", to)
		h.docker("restart", "-t", "0", "c2")
		h.reaches("c1", h.addr("c2", "pods"))
	}
	// Without live-restore the containers end with dockerd, which does not tell the driver.
	h.dockerd.end(syscall.SIGKILL)
	h.driver.end(syscall.SIGKILL)
	h.startDriver()
	h.startDockerd()
	h.docker("rm", "-f", "c1", "c2", "c3")
	h.clean()
	h.docker("network", "rm", "pods")
}

// object creates an object in the datastore.
func (c *cluster) object(text string) {
	c.t.Helper()
	o, err := store.NewObject([]byte(text))
	if err == nil {
		_, err = c.store.Create(c.t.Context(), o)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
