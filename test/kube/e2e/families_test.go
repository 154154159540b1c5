// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// pool4 and pool6 are a pool of each family, dualPools a configuration of both.
const (
	pool4 = "  - {cidr: 10.77.0.0/20, blockSize: 28, encapsulation: vxlan, natOutgoing: true}\n"
	pool6 = `  - {cidr: "fd77::/64", blockSize: 124, encapsulation: vxlan, natOutgoing: true}` + "\n"

	dualPools = "  pools:\n" + pool4 + pool6
)

// TestDualStack: pods, Services and nodes of a dual-stack Kubernetes reach each other in both families, first with the
// nodes' prefixes, then with pools over VXLAN. What pods send out of the cluster has the node's address.
func TestDualStack(t *testing.T) {
	weft(t)
	c := newCluster(t, "e2eds", "--cni", "weft", "--dual-stack")
	t.Run("prefixes", func(t *testing.T) { c.testFamilies(t, "10.244.0.0/16", "fd44::/56") })
	c.configure(t, dualPools)
	c.allocatesFromPools(t)
	t.Run("pools", func(t *testing.T) { c.testFamilies(t, "10.77.0.0/20", "fd77::/64") })
	t.Run("masquerade", func(t *testing.T) { c.testMasquerade(t, "10.90.0.1", "fd90::1") })
}

// TestIPv6: the same in a Kubernetes whose nodes, API server, pods and Services have addresses of IPv6 only.
func TestIPv6(t *testing.T) {
	weft(t)
	c := newCluster(t, "e2ev6", "--cni", "weft", "--ipv6")
	t.Run("prefixes", func(t *testing.T) { c.testFamilies(t, "fd44::/56") })
	c.configure(t, "  pools:\n"+pool6)
	c.allocatesFromPools(t)
	t.Run("pools", func(t *testing.T) { c.testFamilies(t, "fd77::/64") })
	t.Run("masquerade", func(t *testing.T) { c.testMasquerade(t, "fd90::1") })
}

// testFamilies: new pods have an address of each range, and only these, and reach each other by them and by a Service;
// the connectivity test passes in the families of the ranges. The last range is of IPv6.
func (c Cluster) testFamilies(t *testing.T, ranges ...string) {
	t.Helper()
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	for _, p := range pods {
		if len(p.Status.PodIPs) != len(ranges) {
			t.Fatalf("%s has %+v, want an address of each of %v", p.Metadata.Name, p.Status.PodIPs, ranges)
		}
		for i, in := range ranges {
			if a, err := netip.ParseAddr(p.Status.PodIPs[i].IP); err != nil || !netip.MustParsePrefix(in).Contains(a) {
				t.Errorf("%s has %s, want one of %s", p.Metadata.Name, p.Status.PodIPs[i].IP, in)
			}
		}
	}
	c.apply(t, ns, serviceOf("web", "{app: web}", 80, 8080, len(ranges)))
	var svc struct{ Spec struct{ ClusterIPs []string } }
	c.get(t, &svc, "service", "web", "-n", ns)
	if len(svc.Spec.ClusterIPs) != len(ranges) {
		t.Fatalf("the Service has %v, want an address of each family of %v", svc.Spec.ClusterIPs, ranges)
	}
	for _, from := range pods {
		var to []string
		for _, ip := range svc.Spec.ClusterIPs {
			to = append(to, net.JoinHostPort(ip, "80"))
		}
		for _, p := range pods {
			for _, ip := range p.Status.PodIPs {
				to = append(to, net.JoinHostPort(ip.IP, "8080"))
			}
		}
		for _, host := range to {
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
	v6, last := 0, ranges[len(ranges)-1]
	for _, one := range r.Tests {
		for _, row := range one.Rows {
			if strings.Contains(row.Name, last[:strings.Index(last, "::")]) || strings.Contains(row.Name, "IPv6") {
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

// serviceOf returns a Service of one or of both families.
func serviceOf(name, selector string, port, target, families int) string {
	policy := "SingleStack"
	if families == 2 {
		policy = "RequireDualStack"
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {ipFamilyPolicy: %s, selector: %s, ports: [{port: %d, targetPort: %d}]}
`, name, policy, selector, port, target)
}

// testMasquerade: what a pod sends to a host outside of the cluster, by each of the host's addresses, has its node's
// address of that family.
func (c Cluster) testMasquerade(t *testing.T, hosts ...string) {
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
		for i, host := range hosts {
			eventually(t, 20*time.Second, func() error {
				out, err := c.try("kubectl", "-n", ns, "exec", p.Metadata.Name, "--", "curl", "-sS", "-g", "-m", "3", "http://"+net.JoinHostPort(host, "9090")+"/")
				if err == nil && out != node.Status.Addresses[i].Address {
					err = fmt.Errorf("%s sees %s as %q, want %s", host, p.Metadata.Name, out, node.Status.Addresses[i].Address)
				}
				return err
			})
		}
	}
}
