// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const shimmed = `{"type":"macvlan","master":"wire0","hostShim":true,"ipam":{"type":"host-local",
	"ranges":[[{"subnet":"10.8.0.0/24"}],[{"subnet":"fd00:8::/64"}]],"dataDir":"DATA"}}`

// newShimNode returns a node with addresses on wire0, and a host at the other end.
func newShimNode(t *testing.T) (n *node, host *netns.NS) {
	t.Helper()
	n = newNode(t)
	n.cfg.Planners = plugin.InAgent()
	n.Attacher = attach.New(n.cfg)
	host = nettest.NS(t, "host")
	nettest.Run(t, nil, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "eth0", "netns", host.Path())
	t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", "wire0") })
	for _, side := range []struct {
		ns       *netns.NS
		link, id string
	}{{nil, "wire0", "1"}, {host, "eth0", "c8"}} {
		nettest.Run(t, side.ns, "ip", "addr", "add", map[string]string{"1": "10.8.0.1/24", "c8": "10.8.0.200/24"}[side.id], "dev", side.link)
		nettest.Run(t, side.ns, "ip", "addr", "add", "fd00:8::"+side.id+"/64", "dev", side.link, "nodad")
		nettest.Run(t, side.ns, "ip", "link", "set", side.link, "up")
	}
	return n, host
}

func reach(t *testing.T, from *netns.NS, to string) {
	t.Helper()
	if out, err := nettest.Try(from, "ping", "-c1", "-W20", to); err != nil {
		t.Errorf("%s is not reached: %v\n%s", to, err, out)
	}
}

func noReach(t *testing.T, from *netns.NS, to, why string) {
	t.Helper()
	if out, err := nettest.Try(from, "ping", "-c1", "-W1", to); err == nil {
		t.Errorf("%s is reached: %s\n%s", to, why, out)
	}
}

// TestHostShim: with hostShim a node and its own macvlan pods reach each other, in both families, and other hosts reach
// the node as before. The first pod makes the shim, and the last one takes it along.
func TestHostShim(t *testing.T) {
	n, host := newShimNode(t)
	shim := plugin.HostShim("wire0")
	type pod struct {
		job   attach.Job
		addrs []string
	}
	var pods []pod
	for range 2 {
		id, ns := n.pod()
		p := pod{job: n.job(n.list(shimmed), id, ns)}
		for _, ip := range n.add(p.job).IPs {
			p.addrs = append(p.addrs, ip.Address.Addr().String())
		}
		pods = append(pods, p)
	}
	both := func(p pod) {
		t.Helper()
		for _, addr := range p.addrs {
			reach(t, nil, addr)
			reach(t, host, addr)
		}
		for _, ns := range []*netns.NS{p.job.Netns, host} {
			reach(t, ns, "10.8.0.1")
			reach(t, ns, "fd00:8::1")
		}
	}
	for _, p := range pods {
		both(p)
		if err := n.Check(t.Context(), p.job); err != nil {
			t.Error(err)
		}
	}
	for range 5 { // only the master answers others
		nettest.Run(t, host, "ip", "neigh", "flush", "all")
		for _, addr := range []string{"10.8.0.1", "fd00:8::1"} {
			reach(t, host, addr)
			out := nettest.Run(t, host, "ip", "neigh", "show", addr)
			if want := nettest.MAC(t, nil, "wire0").String(); !strings.Contains(out, want) {
				t.Errorf("the other host has another MAC than %s for the node: %s", want, out)
			}
		}
	}

	nettest.Run(t, nil, "ip", "link", "del", shim)
	for _, p := range pods {
		if _, err := n.Repair(t.Context(), p.job.Request.Key()); err != nil {
			t.Error(err)
		}
		both(p)
	}
	if err := n.Del(t.Context(), pods[0].job); err != nil {
		t.Error(err)
	}
	n.drain()
	both(pods[1])
	if err := n.Del(t.Context(), pods[1].job); err != nil {
		t.Error(err)
	}
	n.drain()
	if out := nettest.Run(t, nil, "ip", "-o", "link"); strings.Contains(out, shim) {
		t.Errorf("the shim is left:\n%s", out)
	}
	if out := nettest.Run(t, nil, "nft", "list", "ruleset"); out != "" {
		t.Errorf("rules are left:\n%s", out)
	}
	if out := nettest.Run(t, nil, "ip", "route") + nettest.Run(t, nil, "ip", "-6", "route"); strings.Contains(out, shim) {
		t.Errorf("routes are left:\n%s", out)
	}
}

// TestHostShimIsClosed: nothing but the pods of the node gets in by the shim, and a pod does not get past the node.
func TestHostShimIsClosed(t *testing.T) {
	n, host := newShimNode(t)
	behind := nettest.NS(t, "behind")
	nettest.Run(t, nil, "ip", "link", "add", "far0", "type", "veth", "peer", "name", "eth0", "netns", behind.Path())
	t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", "far0") })
	for _, line := range []string{"addr add 10.99.0.1/24 dev far0", "link set far0 up"} {
		nettest.IP(t, nil, line)
	}
	for _, line := range []string{"addr add 10.99.0.2/24 dev eth0", "link set eth0 up", "route add default via 10.99.0.1"} {
		nettest.IP(t, behind, line)
	}
	nettest.Run(t, nil, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	t.Cleanup(func() { nettest.Run(t, nil, "sysctl", "-qw", "net.ipv4.ip_forward=0") })
	id, ns := n.pod()
	job := n.job(n.list(shimmed), id, ns)
	addr := n.add(job).IPs[0].Address.Addr().String()

	nettest.IP(t, ns, "route add 10.99.0.0/24 via 10.8.0.1")
	nettest.IP(t, host, "route add 10.99.0.0/24 via 10.8.0.1")
	reach(t, host, "10.99.0.2") // the node forwards
	reach(t, ns, "10.99.0.1")
	noReach(t, ns, "10.99.0.2", "by a pod, past the node")
	noReach(t, behind, addr, "from behind the node")

	shim := nettest.MAC(t, nil, plugin.HostShim("wire0")).String()
	for _, to := range []string{"10.8.0.1", "fd00:8::1"} {
		reach(t, host, to)
		nettest.IP(t, host, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", to, shim))
		noReach(t, host, to, "by another host, at the MAC of the shim")
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.drain()
}

// TestHostShimOfKilledAgent: what is cut off at any step leaves no shim.
func TestHostShimOfKilledAgent(t *testing.T) {
	n, _ := newShimNode(t)
	for _, at := range []string{"after promise plan", "after apply", "before done"} {
		id, ns := n.pod()
		if _, err := n.cut(at).Add(t.Context(), n.job(n.list(shimmed), id, ns)); !errors.Is(err, errCut) {
			t.Fatalf("%s: %v", at, err)
		}
		n.Attacher = attach.New(n.cfg)
		if _, err := n.Recover(t.Context()); err != nil {
			t.Error(err)
		}
		n.drain()
		if out := nettest.Run(t, nil, "ip", "-o", "link"); strings.Contains(out, plugin.HostShim("wire0")) {
			t.Errorf("%s: the shim is left:\n%s", at, out)
		}
		if out := nettest.Run(t, nil, "nft", "list", "ruleset"); out != "" {
			t.Errorf("%s: rules are left:\n%s", at, out)
		}
		if got := n.reserved(); len(got) > 0 {
			t.Errorf("%s: addresses are left: %v", at, got)
		}
	}
}

func TestHostShimRefused(t *testing.T) {
	n, _ := newShimNode(t)
	const ipam = `"ipam":{"type":"static","addresses":[{"address":"10.8.0.2/24"}]}`
	id, ns := n.pod()
	for conf, says := range map[string]string{
		`{"type":"macvlan","master":"wire0","hostShim":true,"mode":"private",` + ipam + `}`:       "with mode private the shim reaches no pod",
		`{"type":"macvlan","master":"wire0","hostShim":true,"linkInContainer":true,` + ipam + `}`: "the master is not the node's",
		`{"type":"macvlan","hostShim":true,` + ipam + `}`:                                         "master is missing",
		`{"type":"macvlan","master":"wire0","hostShim":true}`:                                     "gets no addresses",
	} {
		_, err := n.Add(t.Context(), n.job(n.list(conf), id, ns))
		wantCode(t, conf, err, model.CodeInvalidConf, "hostShim true: ", says)
	}
	_, err := n.Add(t.Context(), n.job(n.list(shimmed, `{"type":"tuning","mac":"02:00:00:00:00:77"}`), id, ns))
	wantCode(t, "another MAC", err, model.CodeInvalidConf, "mac 02:00:00:00:00:77: a host shim has the MAC")
	n.cfg.Planners = plugin.Builtin()
	_, err = attach.New(n.cfg).Add(t.Context(), n.job(n.list(shimmed), id, ns))
	wantCode(t, "without an agent", err, model.CodeInvalidConf, "without an agent nothing removes the shim")
}
