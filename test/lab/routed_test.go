// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/nettest"
)

// clusterOf reads the lab's store.
func clusterOf(t *testing.T, lab string) (c struct {
	ips    map[string][]netip.Addr // by pod
	blocks map[netip.Prefix]struct{ node, pool string }
},
) {
	t.Helper()
	s, err := dir.Open(filepath.Join(lab, "store"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.List("")
	if err != nil {
		t.Fatal(err)
	}
	c.ips, c.blocks = map[string][]netip.Addr{}, map[netip.Prefix]struct{ node, pool string }{}
	m, _ := store.Cluster(objects)
	for _, p := range m.Pods {
		c.ips[p.Name] = p.IPs
	}
	for _, b := range m.Blocks {
		c.blocks[b.CIDR] = struct{ node, pool string }{b.Node, b.Pool}
	}
	return c
}

func inNode(t *testing.T, lab, place string, argv ...string) string {
	t.Helper()
	return must(t, append([]string{"lab", "exec", "--dir", lab, place, "--"}, argv...)...).stdout
}

// A lab's pods are routed: no bridge, one address per family, the gateway a permanent neighbor; and all pairs are
// connected, with addresses of the nodes' prefixes and with blocks of pools.
func TestRouted(t *testing.T) {
	for _, addresses := range []string{"podCIDRs", "pools"} {
		t.Run(addresses, func(t *testing.T) {
			lab := labDir(t)
			must(t, "lab", "up", "--nodes", "3", "--from", examples, "--addresses", addresses, "--dir", lab)
			settled(t, lab)
			for _, node := range []string{"node1", "node2", "node3"} {
				if out := inNode(t, lab, node, "ip", "-o", "link", "show", "type", "bridge"); out != "" {
					t.Errorf("a bridge on %s: %s", node, out)
				}
			}
			if out := inNode(t, lab, "default/web", "ip", "route"); !strings.Contains(out, "default via 169.254.1.1 dev eth0") {
				t.Errorf("routes of web: %s", out)
			}
			if out := inNode(t, lab, "default/web", "ip", "neigh", "show", "169.254.1.1"); !strings.Contains(out,
				"ee:ee:ee:ee:ee:ee PERMANENT") {
				t.Errorf("the gateway: %s", out)
			}
			if out := inNode(t, lab, "default/web", "ip", "-4", "-o", "addr", "show", "eth0"); !strings.Contains(out, "/32") {
				t.Errorf("address of web: %s", out)
			}
			c := clusterOf(t, lab)
			for cidr := range c.blocks {
				if addresses == "podCIDRs" {
					t.Errorf("block %s without pools", cidr)
				}
			}
			for _, a := range c.ips["web"] {
				held := false
				for cidr := range c.blocks {
					held = held || cidr.Contains(a)
				}
				if held != (addresses == "pools") {
					t.Errorf("%s of web is of a block: %t", a, held)
				}
			}
			must(t, "lab", "down", "--dir", lab)
		})
	}
}

// The bridge design is available, too.
func TestBridge(t *testing.T) {
	lab := labDir(t)
	must(t, "lab", "up", "--nodes", "3", "--from", examples, "--design", "bridge", "--dir", lab)
	if out := inNode(t, lab, "backend/db", "ip", "route"); !strings.Contains(out, "default via 10.42.") {
		t.Errorf("routes of db: %s", out)
	}
	if a := weft(t, "lab", "up", "--design", "bridge", "--addresses", "pools", "--dir", lab+"2"); a.code == 0 ||
		!strings.Contains(a.stderr, "design bridge does not support addresses from pools") {
		t.Errorf("a bridge with pools: %d %s", a.code, a.stderr)
	}
}

const pooled = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: tunneled}
spec:
  assignmentMode: Automatic
  regions: [{cidr: 10.42.0.0/24, blockSize: 28}]
  encapsulation: {kind: vxlan}
  natOutgoing: true
---
apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: plain}
spec:
  assignmentMode: Manual
  regions: [{cidr: 10.43.0.0/24, blockSize: 29}]
  encapsulation: {kind: none}
`

const pooledPod = `---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {%s}}
spec:
  nodeName: %s
  containers: [{name: c, image: none, command: [sleep, infinity]}]
`

// Two pools, one with a tunnel and one without; a pod requests the second one, and all pairs are connected.
func TestTwoPools(t *testing.T) {
	nettest.Need(t, "vxlan")
	from, lab := t.TempDir(), labDir(t)
	text := pooled
	for i := 1; i <= 3; i++ {
		node := fmt.Sprintf("node%d", i)
		text += fmt.Sprintf(pooledPod, fmt.Sprintf("tunneled%d", i), "", node)
		text += fmt.Sprintf(pooledPod, fmt.Sprintf("plain%d", i), `cni.projectcalico.org/ipv4pools: '["plain"]'`, node)
	}
	if err := os.WriteFile(filepath.Join(from, "pools.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "lab", "up", "--nodes", "3", "--from", from, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24",
		"--dir", lab)
	settled(t, lab)
	c := clusterOf(t, lab)
	for pod, ips := range c.ips {
		pool := strings.TrimRight(pod, "123")
		for cidr, b := range c.blocks {
			if cidr.Contains(ips[0]) && b.pool != pool {
				t.Errorf("%s has %s of pool %s", pod, ips[0], b.pool)
			}
		}
	}
	routes := inNode(t, lab, "node1", "ip", "route")
	for _, line := range strings.Split(routes, "\n") {
		switch {
		case !strings.Contains(line, " via "):
		case strings.HasPrefix(line, "10.42.0.") && !strings.Contains(line, "dev flannel.1"),
			strings.HasPrefix(line, "10.43.0.") && !strings.Contains(line, "dev eth0"):
			t.Errorf("wrong route: %s", line)
		}
	}
	if strings.Count(routes, "10.42.0.") < 4 || strings.Count(routes, "10.43.0.") < 4 {
		t.Errorf("routes:\n%s", routes)
	}
	within(t, 10*waitUnit, "an address at the tunnel", func() bool {
		return strings.Contains(inNode(t, lab, "node1", "ip", "-4", "-o", "addr", "show", "flannel.1"), "10.42.0.")
	})
	if out := inNode(t, lab, "node1", "nft", "list", "table", "inet", "weft-cluster"); !strings.Contains(out,
		"ip saddr @open4 return") {
		t.Errorf("masquerade rules: %s", out)
	}
	within(t, 10*waitUnit, "weft mesh ping", func() bool {
		a := weft(t, "lab", "exec", "--dir", lab, "node1", "--", filepath.Join(nettest.Programs(t), "weft"), "mesh", "ping",
			"--state-dir", filepath.Join(lab, "nodes", "node1", "agent"))
		return a.code == 0
	})
}
