// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

const agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"

// Pod is the part of a Pod object that the tests read.
type Pod struct {
	Metadata struct {
		Name, UID   string
		Annotations map[string]string
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase, PodIP, HostIP string
		PodIPs               []struct{ IP string }
		ContainerStatuses    []struct{ RestartCount int }
		Conditions           []struct{ Type, Status string }
	}
}

func (p Pod) ready() bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c struct{ Type, Status string }) bool {
		return c.Type == "Ready" && c.Status == "True"
	})
}

// pods lists the pods of a namespace, in the order of their nodes.
func (c Cluster) pods(t *testing.T, namespace string) []Pod {
	t.Helper()
	var list struct{ Items []Pod }
	c.get(t, &list, "pods", "-n", namespace)
	slices.SortFunc(list.Items, func(a, b Pod) int {
		return strings.Compare(a.Spec.NodeName+a.Metadata.Name, b.Spec.NodeName+b.Metadata.Name)
	})
	return list.Items
}

// deployment returns a Deployment of agnhost's HTTP and UDP server, spread evenly over the nodes.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists}, {key: node.kubernetes.io/not-ready, operator: Exists}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: %[1]s}}}
      containers:
      - name: c
        image: %[3]s
        args: [netexec, --http-port=8080, --udp-port=8081]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
`, name, replicas, agnhost)
}

// rollOut applies a deployment and waits until all of it is ready.
func (c Cluster) rollOut(t *testing.T, namespace, name string, replicas int) []Pod {
	t.Helper()
	c.apply(t, namespace, deployment(name, replicas))
	c.kubectl(t, "-n", namespace, "rollout", "status", "deployment/"+name, "--timeout=180s")
	return c.pods(t, namespace)
}

// fetch sends an HTTP request; the control plane's namespace acts as a host outside of the cluster.
func (c Cluster) fetch(from, where string) (string, error) {
	return c.try("exec", from, "curl", "-sS", "-f", "-m", "5", where)
}

// dial requests the host name from an address through a pod of agnhost.
func (c Cluster) dial(p Pod, protocol, host string, port int) (string, error) {
	q := url.Values{
		"host": {host}, "port": {fmt.Sprint(port)}, "protocol": {protocol}, "request": {"hostname"}, "tries": {"1"},
	}
	out, err := c.fetch("control", "http://"+net.JoinHostPort(p.Status.PodIP, "8080")+"/dial?"+q.Encode())
	if err == nil && !strings.Contains(out, `"responses":["`) {
		err = fmt.Errorf("%s to %s port %d: %s", protocol, host, port, out)
	}
	return out, err
}

// nodes returns the nodes' names.
func (c Cluster) nodes(t *testing.T) []string {
	t.Helper()
	return strings.Fields(c.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
}

// nodeIP returns a node's address.
func (c Cluster) nodeIP(t *testing.T, node string) string {
	t.Helper()
	return c.kubectl(t, "get", "node", node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
}

// allReady waits until a namespace has n pods, all ready.
func (c Cluster) allReady(t *testing.T, namespace string, n int, limit time.Duration) []Pod {
	t.Helper()
	var all []Pod
	eventually(t, limit, func() error {
		all = c.pods(t, namespace)
		if len(all) != n {
			return fmt.Errorf("%d pods, want %d", len(all), n)
		}
		for _, p := range all {
			if !p.ready() {
				return fmt.Errorf("pod %s on %s is not ready: %s", p.Metadata.Name, p.Spec.NodeName, p.Status.Phase)
			}
		}
		return nil
	})
	return all
}
