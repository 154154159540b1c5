// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestPodToPod: a Deployment on both nodes; all pairs of pods are connected by TCP and UDP, without SNAT.
func TestPodToPod(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 4)
	on := map[string]int{}
	for _, p := range pods {
		on[p.Spec.NodeName]++
	}
	if len(on) != 2 {
		t.Fatalf("pods are on %v, want them on both nodes", on)
	}
	for _, from := range pods {
		for _, to := range pods {
			for protocol, port := range map[string]int{"http": 8080, "udp": 8081} {
				eventually(t, time.Minute, func() error {
					out, err := c.dial(from, protocol, to.Status.PodIP, port)
					if err == nil && !strings.Contains(out, to.Metadata.Name) {
						return fmt.Errorf("%s answers %s", to.Metadata.Name, out)
					}
					return err
				})
			}
		}
	}
	var seen string
	eventually(t, time.Minute, func() (err error) {
		seen, err = c.try("kubectl", "-n", ns, "exec", pods[0].Metadata.Name, "--", "curl", "-sS", "-m", "5",
			"http://"+pods[3].Status.PodIP+":8080/clientip")
		return err
	})
	if host, _, _ := net.SplitHostPort(seen); host != pods[0].Status.PodIP {
		t.Errorf("the pod on the other node sees %s, want the pod's own address %s", seen, pods[0].Status.PodIP)
	}
}

// TestService: ClusterIPs and node ports from pods, nodes and outside; and hairpin of a pod through its Service.
func TestService(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	c.kubectl(t, "-n", ns, "expose", "deployment", "web", "--port=80", "--target-port=8080", "--type=NodePort")
	var service struct {
		Spec struct {
			ClusterIP string
			Ports     []struct{ NodePort int }
		}
	}
	c.get(t, &service, "service", "web", "-n", ns)
	for _, p := range pods {
		answered := map[string]bool{} // both pods, so also the client itself
		eventually(t, 2*time.Minute, func() error {
			out, err := c.dial(p, "http", service.Spec.ClusterIP, 80)
			if err == nil {
				answered[out] = true
			}
			if len(answered) < 2 {
				return fmt.Errorf("%s reached only %v by the Service: %w", p.Metadata.Name, answered, err)
			}
			return nil
		})
	}
	for _, node := range c.nodes(t) {
		eventually(t, time.Minute, func() error {
			if _, err := c.fetch(node, "http://"+service.Spec.ClusterIP+"/hostname"); err != nil {
				return fmt.Errorf("the Service from %s: %w", node, err)
			}
			return nil
		})
		eventually(t, time.Minute, func() error {
			if _, err := c.fetch("control",
				fmt.Sprintf("http://%s:%d/hostname", c.nodeIP(t, node), service.Spec.Ports[0].NodePort)); err != nil {
				return fmt.Errorf("the node port of %s from outside: %w", node, err)
			}
			return nil
		})
	}
}

// TestDNS: name resolution from pods on both nodes, through the Service of the cluster's DNS.
func TestDNS(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	c.kubectl(t, "-n", ns, "expose", "deployment", "web", "--port=80", "--target-port=8080", "--cluster-ip=None")
	for _, p := range pods {
		eventually(t, 20*time.Second, func() error {
			out, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "dig", "+short", "+search", "+time=2",
				"+tries=1", "web")
			for _, want := range pods {
				if err == nil && !strings.Contains(out, want.Status.PodIP) {
					return fmt.Errorf("%s finds %q, want also %s", p.Metadata.Name, out, want.Status.PodIP)
				}
			}
			return err
		})
		if out := c.kubectl(t, "-n", ns, "exec", p.Metadata.Name, "--", "dig", "+short", "+tcp", "+time=5",
			"kubernetes.default.svc.cluster.local"); strings.TrimSpace(out) != "10.96.0.1" {
			t.Errorf("by TCP, %s finds %q", p.Metadata.Name, out)
		}
	}
}

// TestHostPort: a host port reaches the pod from outside, from the other node and from the node itself, until the pod
// is deleted.
func TestHostPort(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	c.apply(t, ns, `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: node1
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: `+agnhost+`
    args: [netexec, --http-port=8080]
    ports: [{containerPort: 8080, hostPort: 18080}]
`)
	c.allReady(t, ns, 1, time.Minute)
	at := "http://" + c.nodeIP(t, "node1") + ":18080/hostname"
	for _, from := range []string{"control", "node2", "node1"} {
		eventually(t, 10*time.Second, func() error {
			out, err := c.fetch(from, at)
			if err == nil && out != "web" {
				return fmt.Errorf("answer %q", out)
			}
			return err
		})
	}
	c.kubectl(t, "-n", ns, "delete", "pod", "web", "--timeout=60s")
	eventually(t, 20*time.Second, func() error {
		if out, err := c.fetch("control", at); err == nil {
			return fmt.Errorf("port 18080 still answers %q", out)
		}
		return nil
	})
}

// TestProbes: the kubelet probes pods by HTTP, TCP and gRPC; a pod whose probe fails is restarted and stays unready.
func TestProbes(t *testing.T) {
	c := kube(t)
	ns := c.namespace(t)
	pod := func(name, args, probes string) string {
		return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    args: [%s]
    %s
`, name, agnhost, args, probes)
	}
	c.apply(
		t, ns,
		pod("http", "netexec, --http-port=8080",
			"readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}")+
			pod("tcp", "netexec, --http-port=8080", "readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}")+
			pod("grpc", "grpc-health-checking", "readinessProbe: {grpc: {port: 5000}, periodSeconds: 1}"))
	c.allReady(t, ns, 3, time.Minute)
	c.apply(t, ns, pod("sick", "netexec, --http-port=8080",
		"livenessProbe: {tcpSocket: {port: 9999}, periodSeconds: 1, failureThreshold: 2}\n    readinessProbe: {tcpSocket: {port: 9999}, periodSeconds: 1}"))
	eventually(t, time.Minute, func() error {
		var p Pod
		c.get(t, &p, "pod", "sick", "-n", ns)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 || p.ready() {
			return fmt.Errorf("pod sick: %+v", p.Status)
		}
		return nil
	})
}
