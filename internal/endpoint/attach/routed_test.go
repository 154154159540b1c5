// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// calico is a configuration as Calico's documents have it.
const calico = `{"type":"calico","log_level":"info","datastore_type":"kubernetes","nodename":"n1","mtu":1400,"policy":{"type":"k8s"},
	"kubernetes":{"kubeconfig":"/etc/cni/net.d/calico-kubeconfig"},"container_settings":{"allow_ip_forwarding":false},
	"ipam":{"type":"host-local","ranges":[[{"subnet":"usePodCidr"}],[{"subnet":"usePodCidrIPv6"}]],"dataDir":"DATA"}}`

// routedNode is a node with prefixes, whose agent knows the routed design.
func routedNode(t testing.TB) *node {
	n := newNode(t)
	nettest.Run(t, nil, "ip", "addr", "replace", "192.0.2.7/32", "dev", "lo")
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "addr", "del", "192.0.2.7/32", "dev", "lo") })
	n.cfg.Planners = plugin.InAgent()
	n.cfg.Node = func() attach.Node {
		return attach.Node{
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24"), netip.MustParsePrefix("fd00:8::/64")}, MTU: 1380,
		}
	}
	n.Attacher = attach.New(n.cfg)
	return n
}

// routedPod attaches a new pod of the name.
func (n *node) routedPod(conf, name string) (attach.Job, model.Result) {
	n.t.Helper()
	job := n.podJob(conf, name)
	return job, n.add(job)
}

func (n *node) podJob(conf, name string) attach.Job {
	n.t.Helper()
	id, ns := n.pod()
	job := n.job(n.list(conf), id, ns)
	job.Request.Args = [][2]string{{"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", name}}
	return job
}

func TestRoutedPod(t *testing.T) {
	n := routedNode(t)
	a, first := n.routedPod(calico, "web-0")
	b, second := n.routedPod(calico, "web-1")
	const host = "cali0d7763386da" // of sha1("default.web-0")
	if got := plugin.CalicoHostName(a.Request); got != host || first.Interfaces[0].Name != host ||
		first.Interfaces[0].MAC != "ee:ee:ee:ee:ee:ee" {
		t.Errorf("host's end is %s, result %+v", got, first.Interfaces)
	}
	if first.Interfaces[1].MTU != 1400 || first.IPs[0].Address.String() != "10.8.0.2/32" ||
		first.IPs[0].Gateway.IsValid() {
		t.Errorf("result %+v", first)
	}
	for _, ip := range second.IPs {
		nettest.Run(t, a.Netns, "ping", "-c1", "-W20", ip.Address.Addr().String())
	}
	nettest.Run(t, nil, "ping", "-c1", "-W20", first.IPs[0].Address.Addr().String())
	if out := nettest.Run(t, a.Netns, "ip", "neigh"); strings.Count(out, "ee:ee:ee:ee:ee:ee PERMANENT") != 2 {
		t.Errorf("the pod's gateways: %s", out)
	}
	a.Prev = &first
	if err := n.Check(t.Context(), a); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if d := diff(first, n.add(a)); d != "" {
		t.Errorf("the same ADD again: %s", d)
	}
	nettest.Run(t, a.Netns, "ip", "neigh", "del", "169.254.1.1", "dev", "eth0")
	wantCode(t, "CHECK", n.Check(t.Context(), a), model.CodeDiffers, "169.254.1.1")
	for range 2 {
		for _, job := range []attach.Job{a, b} {
			if err := n.Del(t.Context(), job); err != nil {
				t.Errorf("DEL: %v", err)
			}
		}
	}
	n.clean("DEL")
}

// A pod speaks for itself alone: with its own MAC address and its own addresses, to no loopback address of the node.
func TestRoutedSource(t *testing.T) {
	n := routedNode(t)
	a, first := n.routedPod(calico, "web-0")
	b, second := n.routedPod(calico, "web-1")
	own4, own6 := first.IPs[0].Address.Addr().String(), first.IPs[1].Address.Addr().String()
	to4, to6 := second.IPs[0].Address.Addr().String(), second.IPs[1].Address.Addr().String()
	nettest.Run(t, nil, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
	ip := func(args ...string) { t.Helper(); nettest.Run(t, a.Netns, append([]string{"ip"}, args...)...) }
	heard := func(what string, want bool, ping ...string) {
		t.Helper()
		// One that should be answered is sent again each second: the first may be lost while neighbors are resolved.
		limit := map[bool]string{true: "-w30", false: "-W1"}[want]
		_, err := nettest.Try(a.Netns, append([]string{"ping", "-c1", limit}, ping...)...)
		if (err == nil) != want {
			t.Errorf("%s: heard %v, want %v", what, err == nil, want)
		}
	}
	heard("own address", true, to4)
	heard("own address", true, to6)
	heard("the node's", true, "192.0.2.7")
	ip("addr", "add", "10.8.0.77/32", "dev", "eth0")
	ip("addr", "add", "fd00:8::77/128", "dev", "eth0", "nodad")
	// so that an answer would come
	nettest.Run(t, nil, "ip", "route", "add", "10.8.0.77", "dev", plugin.CalicoHostName(a.Request))
	nettest.Run(t, nil, "ip", "route", "add", "fd00:8::77", "dev", plugin.CalicoHostName(a.Request))
	before := spoofed(t)
	heard("another address", false, "-I", "10.8.0.77", to4)
	heard("another address", false, "-I", "fd00:8::77", to6)
	if got := spoofed(t) - before; got < 2 {
		t.Errorf("%d packets are counted", got)
	}
	heard("own address", true, "-I", own4, to4)
	heard("own address", true, "-I", own6, to6)
	ip("link", "set", "eth0", "address", "02:00:00:00:00:66")
	ip("neigh", "replace", "169.254.1.1", "lladdr", "ee:ee:ee:ee:ee:ee", "dev", "eth0")
	heard("another MAC address", false, "-I", own4, to4)
	ip("link", "set", "eth0", "address", first.Interfaces[1].MAC)
	ip("neigh", "replace", "169.254.1.1", "lladdr", "ee:ee:ee:ee:ee:ee", "dev", "eth0")
	heard("own address", true, "-I", own4, to4)
	ip("route", "add", "127.0.0.53/32", "via", "169.254.1.1", "dev", "eth0")
	nettest.Run(t, a.Netns, "sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1")
	ip("route", "flush", "table", "local", "127.0.0.0/8")
	heard("the node's loopback", false, "-I", own4, "127.0.0.53")
	for _, job := range []attach.Job{a, b} {
		if err := n.Del(t.Context(), job); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	n.clean("DEL")
}

// spoofed is how many packets were dropped for their sender.
func spoofed(t *testing.T) (packets int) {
	t.Helper()
	for _, family := range []string{"inet", "arp"} {
		out := nettest.Run(t, nil, "nft", "list", "table", family, "weft_source")
		for _, rest := range strings.Split(out, "counter packets ")[1:] {
			var n int
			_, _ = fmt.Sscan(rest, &n)
			packets += n
		}
	}
	return packets
}

func (n *node) hostEnd(job attach.Job) string { return plugin.CalicoHostName(job.Request) }
