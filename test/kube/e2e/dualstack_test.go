// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// dualPools are pools of both families.
const dualPools = `  pools:
  - {cidr: 10.77.0.0/20, blockSize: 28, encapsulation: vxlan, natOutgoing: true}
  - {cidr: "fd77::/64", blockSize: 124, encapsulation: vxlan, natOutgoing: true}
`

// TestDualStack: pods, Services and nodes of a dual-stack Kubernetes reach each other in both families, first with the
// nodes' prefixes, then with pools over VXLAN. What pods send out of the cluster has the node's address.
func TestDualStack(t *testing.T) {
	weft(t)
	c := newCluster(t, "e2eds", "--cni", "weft", "--dual-stack")
	t.Run("prefixes", func(t *testing.T) { c.testDualStack(t, "10.244.0.0/16", "fd44::/56") })
	c.configure(t, dualPools)
	c.allocatesFromPools(t)
	t.Run("pools", func(t *testing.T) { c.testDualStack(t, "10.77.0.0/20", "fd77::/64") })
	t.Run("masquerade", c.testMasquerade)
}

// testDualStack: new pods have an address of each range, and reach each other by it and by a Service; the connectivity test
// passes in both families.
func (c Cluster) testDualStack(t *testing.T, ranges ...string) {
	t.Helper()
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	for _, p := range pods {
		if len(p.Status.PodIPs) != 2 {
			t.Fatalf("%s has %+v, want an address of each family", p.Metadata.Name, p.Status.PodIPs)
		}
		for i, in := range ranges {
			if a, err := netip.ParseAddr(p.Status.PodIPs[i].IP); err != nil || !netip.MustParsePrefix(in).Contains(a) {
				t.Errorf("%s has %s, want one of %s", p.Metadata.Name, p.Status.PodIPs[i].IP, in)
			}
		}
	}
	c.apply(t, ns, dualService("web", "{app: web}", 80, 8080))
	var svc struct{ Spec struct{ ClusterIPs []string } }
	c.get(t, &svc, "service", "web", "-n", ns)
	if len(svc.Spec.ClusterIPs) != 2 {
		t.Fatalf("the Service has %v, want an address of each family", svc.Spec.ClusterIPs)
	}
	for _, from := range pods {
		to := slices.Clone(svc.Spec.ClusterIPs)
		for _, p := range pods {
			to = append(to, "["+p.Status.PodIPs[1].IP+"]:8080")
		}
		for _, host := range to {
			if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
				host = "[" + host + "]"
			}
			eventually(t, 20*time.Second, func() error {
				out, err := c.try("kubectl", "-n", ns, "exec", from.Metadata.Name, "--", "curl", "-sS", "-g", "-m", "3",
					"http://"+host+"/hostname")
				if err == nil && !strings.HasPrefix(out, "web-") {
					err = fmt.Errorf("%s reads %q from %s", from.Metadata.Name, out, host)
				}
				return err
			})
		}
	}
	r := c.connectivityTest(t)
	v6 := 0
	for _, one := range r.Tests {
		for _, row := range one.Rows {
			if strings.Contains(row.Name, ranges[1][:strings.Index(ranges[1], "::")]) || strings.Contains(row.Name, "IPv6") {
				v6++
			}
			if !row.OK {
				t.Errorf("%s: %s: %s\n%s", one.Name, row.Name, row.Error, strings.Join(row.Diagnosis, "\n"))
			}
		}
	}
	if !r.OK() || v6 == 0 {
		t.Errorf("the connectivity test: passed %v, %d checks of IPv6", r.OK(), v6)
	}
}

// dualService returns a Service of both families.
func dualService(name, selector string, port, target int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {ipFamilyPolicy: RequireDualStack, selector: %s, ports: [{port: %d, targetPort: %d}]}
`, name, selector, port, target)
}

// testMasquerade: what a pod sends to a host outside of the cluster has its node's address, in both families.
func (c Cluster) testMasquerade(t *testing.T) {
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	outside, err := netns.Open("/run/netns/wk-" + c.name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	var ln net.Listener
	if err := outside.Do(func() (err error) { ln, err = net.Listen("tcp", "[::]:9090"); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, netip.MustParseAddrPort(r.RemoteAddr).Addr().Unmap())
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	defer func() { _ = server.Close() }()
	for _, p := range pods {
		var node struct {
			Status struct {
				Addresses []struct{ Type, Address string }
			}
		}
		c.get(t, &node, "node", p.Spec.NodeName)
		for i, host := range []string{"10.90.0.1", "[fd90::1]"} {
			eventually(t, 20*time.Second, func() error {
				out, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "curl", "-sS", "-g", "-m", "3", "http://"+host+":9090/")
				if err == nil && out != node.Status.Addresses[i].Address {
					err = fmt.Errorf("%s sees %s as %q, want %s", host, p.Metadata.Name, out, node.Status.Addresses[i].Address)
				}
				return err
			})
		}
	}
}
