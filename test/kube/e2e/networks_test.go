// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Two additional networks: one over the nodes' second interface with cluster-wide addresses, one within each node.
const moreNetworks = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: wide}
spec:
  config: '{"cniVersion": "1.0.0", "type": "macvlan", "master": "eth1", "mode": "bridge",
    "ipam": {"type": "whereabouts", "range": "10.37.132.0/24", "range_start": "10.37.132.20", "range_end": "10.37.132.50", "gateway": "10.37.132.1"}}'
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: local}
spec:
  config: '{"cniVersion": "1.0.0", "type": "bridge", "bridge": "e2e0", "isGateway": true,
    "ipam": {"type": "host-local", "subnet": "10.38.0.0/24"}}'
`

// Status is one network of the annotation network-status.
type Status struct {
	Name, Interface, MAC string
	IPs                  []string
	Default              bool
}

func (p Pod) networks(t *testing.T) []Status {
	t.Helper()
	var all []Status
	if err := json.Unmarshal([]byte(p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"]), &all); err != nil {
		t.Fatalf("network-status of %s: %v: %q", p.Metadata.Name, err, p.Metadata.Annotations)
	}
	return all
}

// podOn returns a pod of agnhost on a node with additional networks.
func podOn(name, node, networks string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {k8s.v1.cni.cncf.io/networks: '%s'}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: %s, args: [netexec, --http-port=8080, --udp-port=8081], readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}}
`, name, networks, node, agnhost)
}

// TestThreeNetworks: eth0 of the cluster, net1 over both nodes, net2; the status annotation is correct, and traffic
// uses the network of its destination.
func TestThreeNetworks(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("one", "node1", "wide, local")+
		podOn("two", "node2", `[{"name": "wide"}, {"name": "local", "interface": "loc0"}]`))
	pods := c.allReady(t, ns, 2, time.Minute)
	wide := map[string]string{}
	for i, p := range pods {
		var all []Status
		eventually(t, time.Minute, func() error {
			pods = c.pods(t, ns)
			if p = pods[i]; p.Metadata.Annotations["k8s.v1.cni.cncf.io/network-status"] == "" {
				return fmt.Errorf("%s has no network-status", p.Metadata.Name)
			}
			return nil
		})
		all = p.networks(t)
		if len(all) != 3 {
			t.Fatalf("%s has the networks %+v, want 3", p.Metadata.Name, all)
		}
		last := map[string]string{"one": "net2", "two": "loc0"}[p.Metadata.Name]
		for j, want := range []string{"eth0", "net1", last} {
			if s := all[j]; s.Interface != want || s.Default != (j == 0) || len(s.IPs) != 1 || s.MAC == "" {
				t.Errorf("network %d of %s is %+v, want it on %s", j, p.Metadata.Name, s, want)
			}
		}
		if all[0].IPs[0] != p.Status.PodIP {
			t.Errorf("eth0 of %s has %s, and the pod %s", p.Metadata.Name, all[0].IPs[0], p.Status.PodIP)
		}
		wide[p.Metadata.Name] = all[1].IPs[0]
	}
	for name, address := range wide {
		a, err := netip.ParseAddr(address)
		if err != nil || !netip.MustParsePrefix("10.37.132.0/24").Contains(a) || a.As4()[3] < 20 || a.As4()[3] > 50 {
			t.Errorf("net1 of %s has %s, want one of 10.37.132.20 to .50 (%v)", name, address, err)
		}
	}
	if wide["one"] == wide["two"] {
		t.Fatalf("both pods have %s on the network that spans the nodes", wide["one"])
	}
	eventually(t, time.Minute, func() error {
		out, err := c.try("kubectl", "-n", ns, "exec", "one", "--", "curl", "-sS", "-m", "3",
			"http://"+wide["two"]+":8080/clientip")
		if err == nil && !strings.HasPrefix(out, wide["one"]+":") {
			return fmt.Errorf("two sees %s, want %s", out, wide["one"])
		}
		return err
	})
	if out := c.kubectl(t, "-n", ns, "exec", "one", "--", "ip", "route", "show", "default"); !strings.Contains(out,
		"dev eth0") {
		t.Errorf("the default route is %q, want it on eth0", out)
	}
	eventually(t, time.Minute, func() error {
		events, err := c.try("kubectl", "-n", ns, "get", "events", "--field-selector",
			"reason=AddedInterface,involvedObject.name=one")
		if err == nil && strings.Count(events, "AddedInterface") < 3 {
			err = fmt.Errorf("events of one:\n%s\nwant AddedInterface for each network", events)
		}
		return err
	})
}

// TestHotAttach: the annotation of a running pod changes, and so do its interfaces; the pod is not restarted.
func TestHotAttach(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	c.apply(t, ns, moreNetworks)
	c.apply(t, ns, podOn("one", "node1", "wide"))
	before := c.allReady(t, ns, 1, time.Minute)[0]
	has := func(want string) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			out, err := c.try("kubectl", "-n", ns, "exec", "one", "--", "sh", "-c", "cd /sys/class/net && echo *")
			if err == nil && strings.TrimSpace(out) != want {
				return fmt.Errorf("the pod has %s, want %s", out, want)
			}
			return err
		})
	}
	has("eth0 lo net1")
	c.kubectl(t, "-n", ns, "annotate", "--overwrite", "pod", "one", "k8s.v1.cni.cncf.io/networks=wide, local")
	has("eth0 lo net1 net2")
	c.kubectl(t, "-n", ns, "annotate", "--overwrite", "pod", "one", "k8s.v1.cni.cncf.io/networks=wide")
	has("eth0 lo net1")
	if after := c.pods(t, ns)[0]; after.Metadata.UID != before.Metadata.UID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("the pod was %s with %s and is %s with %s", before.Metadata.UID, before.Status.PodIP, after.Metadata.UID,
			after.Status.PodIP)
	}
}

// TestUnknownNetwork: the pod's events report the missing network, and the pod starts when the network exists.
func TestUnknownNetwork(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	c.apply(t, ns, podOn("one", "node1", "wide"))
	eventually(t, 30*time.Second, func() error {
		out := c.kubectl(t, "-n", ns, "get", "events", "--field-selector", "involvedObject.name=one", "-o",
			"jsonpath={.items[*].message}")
		if !strings.Contains(out, ns+"/wide") {
			return fmt.Errorf("no event names %s/wide: %s", ns, out)
		}
		return nil
	})
	c.apply(t, ns, moreNetworks)
	c.allReady(t, ns, 1, 2*time.Minute)
}
