// SPDX-License-Identifier: Apache-2.0

package docker_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// network6 creates a network of IPv6 only, for which Debian's client has no option.
func (h *host) network6(name, subnet string, options map[string]string) error {
	var config []map[string]string
	if subnet != "" {
		config = append(config, map[string]string{"Subnet": subnet})
	}
	return h.post("/networks/create", map[string]any{
		"Name": name, "Driver": "weft", "EnableIPv4": false, "EnableIPv6": true, "Options": options,
		"IPAM": map[string]any{"Driver": "weft", "Config": config},
	})
}

// has compares a container's address on a network.
func (h *host) has(container, network, addr6 string) {
	h.t.Helper()
	if a := h.addr6(container, network); a != addr6 {
		h.t.Errorf("%s has the address %q, not %s", container, a, addr6)
	}
}

// restarts starts a container again after each of what may end: the container, the driver, the agent and dockerd.
func (h *host) restarts(container string, same func()) {
	h.t.Helper()
	for _, end := range []func(){
		func() {},
		func() { h.driver.end(syscall.SIGKILL); h.startDriver() },
		func() { h.agent.end(syscall.SIGKILL); h.startAgent() },
		func() { h.dockerd.end(syscall.SIGTERM); h.startDockerd() },
		func() { h.dockerd.end(syscall.SIGKILL); h.startDockerd() },
	} {
		end()
		h.docker("restart", "-t", "0", container)
		same()
	}
}

// TestIP6: a container has the IPv6 address that --ip6 requests, with --ip or without, on the cluster's network and on one
// of a plugin, after it was connected again, and whatever was restarted. One that another container has is refused by its
// name, and the refused container leaves nothing.
func TestIP6(t *testing.T) {
	c := newCluster(t, 2, withIPv6)
	one, two := c.nodes[0], c.nodes[1]
	for _, h := range c.nodes {
		h.network("pods", "--ipv6", "--subnet", "10.77.0.0/20", "--subnet", "fd77::/112")
	}
	one.run("c1", "--network", "pods", "--ip6", "fd77::77")
	one.run("c2", "--network", "pods", "--ip", "10.77.1.8", "--ip6", "fd77::78")
	one.has("c1", "pods", "fd77::77")
	one.has("c2", "pods", "fd77::78")
	if a := one.addr("c1", "pods"); !strings.HasPrefix(a, "10.77.") {
		t.Errorf("the container has the IPv4 address %q", a)
	}
	if a := one.addr("c2", "pods"); a != "10.77.1.8" {
		t.Errorf("the container has the IPv4 address %q, not 10.77.1.8", a)
	}
	two.run("far", "--network", "pods")
	for _, to := range []string{"fd77::77", "fd77::78", "10.77.1.8", one.addr("c1", "pods")} {
		two.reaches("far", to)
	}
	one.reaches("c1", "fd77::78")
	one.reaches("c1", two.addr6("far", "pods"))

	before, err := one.attachments()
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	one.refused([]string{"run", "--rm", "--network", "pods", "--ip6", "fd77::77", image, "/bin/true"}, "fd77::77 is taken", "container c1")
	one.refused([]string{"run", "--rm", "--network", "pods", "--ip", "10.77.1.8", "--ip6", "fd77::79", image, "/bin/true"},
		"10.77.1.8 is taken", "container c2")
	two.refused([]string{"run", "--rm", "--network", "pods", "--ip6", "fd77::77", image, "/bin/true"}, "fd77::77 is taken", "n1")
	if after, err := one.attachments(); err != nil || len(after) != 2 {
		t.Errorf("refused containers have left some of %+v, %v", after, err)
	}

	one.refused([]string{"run", "--rm", "--network", "pods", "--ip6", "fd99::1", image, "/bin/true"}, "fd99::1")
	one.network("four", "-o", "pool=blue")
	one.run("c3", "--network", "four")
	for range 2 {
		one.docker("network", "connect", "--ip6", "fd77::7a", "pods", "c3")
		one.has("c3", "pods", "fd77::7a")
		one.reaches("c1", "fd77::7a")
		one.docker("network", "disconnect", "pods", "c3")
	}
	one.docker("rm", "-f", "c3")
	one.restarts("c1", func() {
		t.Helper()
		one.has("c1", "pods", "fd77::77")
		two.reaches("far", "fd77::77")
		two.reaches("far", one.addr("c1", "pods"))
	})

	c.plugin("wire", `{"type":"bridge","bridge":"wire0","isGateway":true,"capabilities":{"ips":true},"ipam":{"type":"host-local",`+
		`"dataDir":"`+one.path("addresses")+`","ranges":[[{"subnet":"10.5.0.0/24"}],[{"subnet":"fd05::/64"}]]}}`)
	one.knows("wire", "--ipv6", "--subnet", "10.5.0.0/24", "--subnet", "fd05::/64", "-o", "network=default/wire")
	one.run("w1", "--network", "wire", "--ip6", "fd05::55")
	one.run("w2", "--network", "wire", "--ip", "10.5.0.66", "--ip6", "fd05::66")
	one.has("w1", "wire", "fd05::55")
	one.reaches("w1", "fd05::66")
	one.reaches("w1", "10.5.0.66")

	// What a plugin cannot give is refused, not replaced.
	c.plugin("fixed", `{"type":"bridge","bridge":"fixed0","ipam":{"type":"static",`+
		`"addresses":[{"address":"10.6.0.5/24"},{"address":"fd06::5/64"}]}}`)
	one.knows("fixed", "--ipv6", "--subnet", "10.6.0.0/24", "--subnet", "fd06::/64", "-o", "network=default/fixed")
	one.refused([]string{"run", "--rm", "--network", "fixed", "--ip6", "fd06::6", image, "/bin/true"}, "fd06::6")
	// A dockerd before 28 requests an IPv4 address in any case.
	c.plugin("onlysix", `{"type":"bridge","bridge":"six0","ipam":{"type":"static","addresses":[{"address":"fd07::5/64"}]}}`)
	one.knows("onlysix", "--ipv6", "-o", "network=default/onlysix")
	one.refused([]string{"run", "--rm", "--network", "onlysix", image, "/bin/true"}, "default/onlysix has no IPv4 addresses", "--ipv4=false")

	one.docker("rm", "-f", "c1", "c2", "w1", "w2")
	two.docker("rm", "-f", "far")
	for _, h := range c.nodes {
		h.clean()
	}
}

// plugin creates a NetworkAttachmentDefinition of a plugin.
func (c *cluster) plugin(name, plugin string) {
	c.t.Helper()
	c.object(fmt.Sprintf(`{"apiVersion":"k8s.cni.cncf.io/v1","kind":"NetworkAttachmentDefinition",
		"metadata":{"name":%q,"namespace":"default"},"spec":{"config":%q}}`, name,
		fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[%s]}`, name, plugin)))
}

// knows creates a network once the agent knows its NetworkAttachmentDefinition.
func (h *host) knows(name string, args ...string) {
	h.t.Helper()
	h.until("network "+name+" is known", func() error {
		_, err := h.try(append(append([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft"}, args...), name)...)
		return err
	})
}

// TestIPv6Only: containers on networks without IPv4 reach each other and those of another node, whether their addresses
// are chosen by the cluster, by a subnet or by --ip6, and whatever was restarted. Published ports and policies are in force,
// also for containers that are on a network of IPv4, too. Removing them leaves nothing.
func TestIPv6Only(t *testing.T) {
	c := newCluster(t, 2, withIPv6)
	one, two := c.nodes[0], c.nodes[1]
	if one.major() < 28 {
		one.refused([]string{"network", "create", "-d", "weft", "--ipam-driver", "weft", "--ipv6", "--ipv4=false", "six"}, "--ipv4")
		return
	}
	c.object(`{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"server","namespace":"default"},
		"spec":{"podSelector":{"matchLabels":{"app":"server"}},"policyTypes":["Ingress"],
		"ingress":[{"from":[{"podSelector":{"matchLabels":{"role":"client"}}}]}]}}`)
	for _, h := range c.nodes {
		for name, subnet := range map[string]string{"six": "", "fixed": "fd77::/112"} {
			if err := h.network6(name, subnet, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := one.network6("more", "", map[string]string{"pool": "more6"}); err != nil {
		t.Fatal(err)
	}
	for options, want := range map[[2]string]string{
		{"pool", "blue"}: "option pool: the addresses of blue 10.78.0.0/20 are of a family", {"pool", "red"}: `no pool \"red\"`,
	} {
		if err := one.network6("n", "", map[string]string{options[0]: options[1]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("option %s: %v, not %s", options, err, want)
		}
	}
	if err := one.network6("n", "fd99::/64", nil); err == nil || !strings.Contains(err.Error(), "it has no whole pool of the cluster in it") {
		t.Errorf("a subnet of no pool: %v", err)
	}
	one.run("c1", "--network", "six")
	one.run("c2", "--network", "fixed", "--ip6", "fd77::77", "--label", "app=server")
	one.run("c3", "--network", "more", "--label", "role=client")
	two.run("far", "--network", "six", "--label", "role=client")
	one.has("c2", "fixed", "fd77::77")
	if a := one.addr6("c3", "more"); !strings.HasPrefix(a, "fd78::") {
		t.Errorf("a container of pool more6 has the address %s", a)
	}
	for _, name := range []string{"c1", "c2"} {
		if out := one.docker("exec", name, "ip", "-4", "addr", "show", "eth0"); out != "" {
			t.Errorf("%s has IPv4 addresses:\n%s", name, out)
		}
		if out := one.docker("exec", name, "ip", "-4", "route"); out != "" {
			t.Errorf("%s has IPv4 routes:\n%s", name, out)
		}
	}
	one.reaches("c1", two.addr6("far", "six"))
	two.reaches("far", one.addr6("c1", "six"))
	two.reaches("far", "fd77::77")
	one.reaches("c3", "fd77::77")
	one.reaches("c1", "fd18::1")
	if out, err := one.try("exec", "c1", "ping", "-c1", "-W1", "fd77::77"); err == nil {
		t.Errorf("a container without the label is allowed:\n%s", out)
	}
	one.refused([]string{"run", "--rm", "--network", "fixed", "--ip6", "fd77::77", image, "/bin/true"}, "fd77::77 is taken", "container c2")
	two.refused([]string{"run", "--rm", "--network", "fixed", "--ip6", "fd77::77", image, "/bin/true"}, "fd77::77 is taken", "n1")
	one.refused([]string{"run", "--rm", "--network", "six", "--sysctl", "net.ipv6.conf.all.disable_ipv6=1", image, "/bin/true"},
		"has IPv6 only, and the container has none")
	one.restarts("c2", func() {
		t.Helper()
		one.has("c2", "fixed", "fd77::77")
		two.reaches("far", "fd77::77")
	})
	one.docker("rm", "-f", "c1", "c2", "c3")

	// Ports, of a container that gets IPv4 from another network and loses it again.
	one.network("four", "-o", "pool=blue")
	one.serve("web", "--network", "six", "-p", "8080:80", "-p", "127.0.0.1:8081:80")
	silent := func(addr string) {
		t.Helper()
		if out, err := two.dial("tcp", addr, "GET / HTTP/1.0\r\n\r\n"); err == nil {
			t.Errorf("%s answers %q", addr, out)
		}
	}
	for range 2 {
		two.answers("web", "[fd18::1]:8080")
		one.answers("web", "[fd18::1]:8080")
		silent("192.168.77.1:8080")
		one.docker("network", "connect", "four", "web")
		two.answers("web", "192.168.77.1:8080")
		one.answers("web", "127.0.0.1:8081")
		two.answers("web", "[fd18::1]:8080")
		one.docker("network", "disconnect", "six", "web")
		two.answers("web", "192.168.77.1:8080")
		silent("[fd18::1]:8080")
		one.docker("network", "connect", "six", "web")
		two.answers("web", "[fd18::1]:8080")
		two.answers("web", "192.168.77.1:8080")
		one.docker("network", "disconnect", "four", "web")
	}
	one.until("the driver logs the ports that it does not publish", func() error {
		if text := tail(one.driver.log); !strings.Contains(text, "ports of IPv4 addresses are not published") {
			return errors.New(text)
		}
		return nil
	})
	one.docker("rm", "-f", "web")
	one.clean()

	// A container on a network of both families and one of IPv6 only, and a dockerd that goes away.
	one.docker("network", "rm", "six", "fixed")
	one.dockerd.end(syscall.SIGTERM)
	one.startDockerd("--live-restore")
	one.network("both", "--ipv6", "-o", "pool=green,six")
	one.run("c1", "--network", "both")
	one.docker("network", "connect", "more", "c1")
	for _, network := range []string{"both", "more"} {
		one.run("peer-"+network, "--network", network)
	}
	for _, end := range []func(){
		func() { one.driver.end(syscall.SIGKILL); one.startDriver() },
		func() { one.agent.end(syscall.SIGKILL); one.startAgent() },
		func() { one.dockerd.end(syscall.SIGKILL); one.startDockerd("--live-restore") },
	} {
		end()
		one.reaches("peer-more", one.addr6("c1", "more"))
		one.reaches("peer-both", one.addr6("c1", "both"))
		one.reaches("peer-both", one.addr("c1", "both"))
	}
	one.dockerd.end(syscall.SIGKILL)
	one.startDockerd()
	one.docker("rm", "-f", "c1", "peer-both", "peer-more")
	two.docker("rm", "-f", "far")
	for _, h := range c.nodes {
		h.clean()
	}
	one.docker("network", "rm", "four", "both", "more")
	if files, _ := filepath.Glob(one.path("docker-state", "*", "*")); len(files) > 0 {
		t.Errorf("the driver has kept %s", files)
	}
}
