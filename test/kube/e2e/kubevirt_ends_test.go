// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// hostPortPod is a pod with a port of its node, and inside a Service with a node port, for pods with the label app=web.
const hostPortPod = `
apiVersion: v1
kind: Pod
metadata: {name: host-port}
spec:
  nodeName: node3
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: %s
    args: [netexec, --http-port=8080, --udp-port=8081]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: inside}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
`

// testVMEnds: the guest reaches each node, and Services, a node port and a host port at them, in both families. Nodes reach
// the guest, and so does virtctl port-forward. The guest and that of a VM on the other node reach each other.
func (c kubeVirtCluster) testVMEnds(t *testing.T, ns, binding, yaml string, addrs []string) {
	c.apply(t, ns, fmt.Sprintf(hostPortPod, agnhost))
	defer c.kubectl(t, "-n", ns, "delete", "pod/host-port", "service/inside", "--timeout=60s")
	var svc struct {
		Spec struct {
			ClusterIPs []string
			Ports      []struct{ NodePort int }
		}
	}
	c.get(t, &svc, "service", "inside", "-n", ns)
	reads := func(addr string, port int, want string) {
		t.Helper()
		eventually(t, vmTime, func() error {
			out, err := c.guest(ns, "vm", fmt.Sprintf(`printf 'GET /hostname HTTP/1.0\r\n\r\n' | nc -w 5 %s %d`, addr, port))
			if err == nil && (!strings.Contains(out, "200 OK") || !strings.Contains(out, want)) {
				err = fmt.Errorf("the guest reads %q from %s", out, net.JoinHostPort(addr, fmt.Sprint(port)))
			}
			return err
		})
	}
	for i, addr := range addrs {
		for _, node := range c.nodes(t) {
			at := strings.Fields(c.nodeIP(t, node))[i]
			eventually(t, vmTime, func() error {
				_, err := c.guest(ns, "vm", "ping -c 1 -W 5 "+at+" >/dev/null")
				return err
			})
			eventually(t, time.Minute, func() error {
				out, err := c.try("exec", node, "sh", "-c", fmt.Sprintf("ping -c 1 -W 5 %[1]s >/dev/null && echo hello | nc -w 3 %[1]s %[2]d", addr, answerPort))
				return guestAnswer(out, err)
			})
			reads(at, svc.Spec.Ports[0].NodePort, "web-")
		}
		reads(svc.Spec.ClusterIPs[i], 80, "web-")
		reads(strings.Fields(c.nodeIP(t, "node3"))[i], 18080, "host-port")
	}
	eventually(t, time.Minute, func() error { // that the guest then ends the connection is an error for virtctl
		out, err := c.try("exec", "control", "sh", "-c", fmt.Sprintf(
			"{ echo hello; sleep 3; } | timeout 20 %s port-forward --stdio=true vmi/vm/%s %d || true", c.virtctl, ns, answerPort))
		return guestAnswer(out, err)
	})

	other := map[string]string{"node1": "node2", "node2": "node1"}[c.where(t, ns)]
	two := c.namespaceNamed(t, ns+"-two")
	c.apply(t, two, strings.Replace(vmManifest("vm", yaml), "values: [node1, node2]", "values: ["+other+"]", 1))
	v := c.running(t, two, "")
	c.awaitLease(t, two)
	own := "fd10:0:2::2/128"
	if binding != "masquerade" {
		own = v.Status.Interfaces[0].IPAddresses[1] + "/128"
	}
	c.awaitIPv6(t, two, binding, own)
	for i, addr := range addrs {
		for _, one := range []struct{ from, to string }{{ns, v.Status.Interfaces[0].IPAddresses[i]}, {two, addr}} {
			eventually(t, vmTime, func() error {
				out, err := c.guest(one.from, "vm", fmt.Sprintf("echo hello | nc -w 5 %s %d", one.to, answerPort))
				return guestAnswer(out, err)
			})
		}
	}
}
