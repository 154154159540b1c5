// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

const (
	addressed = `"ipam":{"type":"host-local","ranges":[[{"subnet":"10.7.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"DATA"}`
	onWire    = `{"type":"macvlan","master":"ens5",` + addressed + `}`
	tapped    = `{"type":"tap","owner":0,` + addressed + `}`
	inBlue    = `{"type":"vrf","vrfname":"blue","table":7}`
)

// uplink is a link of the node that leads to a router, which answers for what containers ask.
func (n *node) uplink() {
	n.t.Helper()
	lan := nettest.NS(n.t, "lan")
	for _, line := range []string{
		"link add ens5 type veth peer name wire netns " + lan.Path(), "link set ens5 up",
	} {
		nettest.IP(n.t, nil, line)
	}
	// A namespace dies in its own time, and the next test makes a link of the same name.
	n.t.Cleanup(func() { _, _ = nettest.Try(nil, "ip", "link", "del", "ens5") })
	for _, line := range []string{"link set wire up", "addr add 10.7.0.1/24 dev wire"} {
		nettest.IP(n.t, lan, line)
	}
}

func (n *node) unplug() {
	n.t.Helper()
	nettest.Run(n.t, nil, "ip", "link", "del", "ens5")
	n.clean("all verbs")
}

// gone checks that links do not exist, once those that DEL released are deleted.
func (n *node) gone(ns *netns.NS, links ...string) {
	n.t.Helper()
	n.drain()
	for _, l := range links {
		if out, err := nettest.Try(ns, "ip", "link", "show", l); err == nil {
			n.t.Errorf("%s is left: %s", l, out)
		}
	}
}

// A list on an uplink is planned as a whole: later plugins change what is created.
func TestKindsInLists(t *testing.T) {
	for name, tc := range map[string]struct{ kind, first string }{"macvlan": {"macvlan", onWire}, "tap": {"tap", tapped}} {
		t.Run(name, func(t *testing.T) {
			nettest.Need(t, tc.kind)
			n := newNode(t)
			n.uplink()
			id, ns := n.pod()
			job := n.job(n.list(tc.first, tuned), id, ns)
			result := n.add(job)
			if len(result.Interfaces) != 1 || result.Interfaces[0].MAC != "02:00:00:00:00:77" {
				t.Errorf("result: %+v", result)
			}
			wantTuned(t, ns)
			if tc.kind == "macvlan" {
				nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
			}
			job.Prev = &result
			if err := n.Check(t.Context(), job); err != nil {
				t.Error(err)
			}
			if d := diff(result, n.add(job)); d != "" {
				t.Errorf("the same ADD again: %s", d)
			}
			nettest.Run(t, ns, "ip", "link", "set", "eth0", "mtu", "1399")
			wantCode(t, "CHECK", n.Check(t.Context(), job), 102, "mtu 1399")
			for range 2 {
				if err := n.Del(t.Context(), job); err != nil {
					t.Error(err)
				}
			}
			n.gone(ns, "eth0")
			n.add(job)
			if err := n.GC(t.Context(), n.job(n.list(tc.first, tuned), "", nil), nil); err != nil {
				t.Error(err)
			}
			n.gone(ns, "eth0")
			n.unplug()
		})
	}
}

// The plugins that change an interface do so with one that has no end on the node.
func TestMacvlanInAChain(t *testing.T) {
	nettest.Need(t, "macvlan", "ifb")
	n := newNode(t)
	n.uplink()
	id, ns := n.pod()
	before := nettest.Run(t, ns, "ip", "-o", "link")
	job := n.job(
		n.list(onWire,
			`{"type":"bandwidth","ingressRate":80000000,"ingressBurst":8000000,"egressRate":80000000,"egressBurst":8000000}`,
			`{"type":"sbr"}`, `{"type":"firewall","backend":"nftables"}`), id, ns)
	result := n.add(job)
	if out := nettest.Run(t, ns, "tc", "qdisc"); strings.Count(out, "tbf") != 2 {
		t.Errorf("limits: %s", out)
	}
	if out := nettest.Run(t, ns, "ip", "route", "get", "192.0.2.1", "from",
		result.IPs[0].Address.Addr().String()); !strings.Contains(out, "table 100") {
		t.Errorf("route by source: %s", out)
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "eth0", "10.7.0.1")
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := n.Del(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	if got := nettest.Run(t, ns, "ip", "-o", "link"); got != before {
		t.Errorf("links: %s", got)
	}
	n.unplug()
}

// A call that is killed at any step leaves nothing when the agent starts again.
func TestKindsRecover(t *testing.T) {
	for _, tc := range []struct{ kind, plugin string }{{"macvlan", onWire}, {"tap", tapped}} {
		t.Run(tc.kind, func(t *testing.T) {
			nettest.Need(t, tc.kind)
			n := newNode(t)
			n.uplink()
			var pods []*netns.NS
			for _, at := range []string{"after promise plan", "after ipam", "after apply", "before done"} {
				id, ns := n.pod()
				if _, err := n.cut(at).Add(t.Context(), n.job(n.list(tc.plugin), id, ns)); !errors.Is(err, errCut) {
					t.Fatalf("%s: %v", at, err)
				}
				pods = append(pods, ns)
			}
			n.Attacher = attach.New(n.cfg)
			if report, err := n.Recover(t.Context()); err != nil || report.Undone != len(pods) || len(report.Problems) > 0 {
				t.Errorf("%+v %v", report, err)
			}
			for _, ns := range pods {
				n.gone(ns, "eth0")
			}
			n.unplug()
		})
	}
}

// Foreign IPAM is executed while the interface is up, as a DHCP client needs it.
func TestMacvlanLate(t *testing.T) {
	nettest.Need(t, "macvlan")
	n := newNode(t)
	n.uplink()
	n.plugin("lease", `[ "$CNI_COMMAND" = ADD ] || exit 0
		nsenter --net="$CNI_NETNS" ip -o link show eth0 up | grep -q ens5 || nsenter --net="$CNI_NETNS" ip -o link show eth0 up | grep -q eth0@ || exit 1
		echo '{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.9/24","gateway":"10.7.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}'`)
	id, ns := n.pod()
	job := n.job(n.list(`{"type":"macvlan","master":"ens5","ipam":{"type":"lease"}}`), id, ns)
	result := n.add(job)
	nettest.Run(t, ns, "ping", "-c1", "-W20", "10.7.0.1")
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	if got := n.verbs("lease"); got != "ADD CHECK DEL" {
		t.Errorf("verbs: %s", got)
	}
	n.gone(ns, "eth0")
	n.unplug()
}

// In one list with what makes the interface, and afterwards, the interface goes into a VRF with its routes.
func TestVRFInLists(t *testing.T) {
	nettest.Need(t, "vrf")
	n := newNode(t)
	n.plugin("pass", passOn)
	for name, plugins := range map[string][]string{
		"bridge": {
			bridge, inBlue,
		}, "ptp": {
			`{"type":"ptp","ipam":{"type":"host-local","subnet":"10.8.0.0/24","routes":[{"dst":"0.0.0.0/0"}],"dataDir":"DATA"}}`,
			inBlue,
		},
		"macvlan": {onWire, inBlue}, "tuned": {bridge, tuned, inBlue}, "cut": {bridge, `{"type":"pass"}`, inBlue},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			n.uplink()
			id, ns := n.pod()
			job := n.job(n.list(plugins...), id, ns)
			result := n.add(job)
			gateway := result.IPs[0].Gateway.String()
			nettest.Run(t, ns, "ping", "-c1", "-W20", "-I", "blue", gateway)
			if out := nettest.Run(t, ns, "ip", "route", "show", "table", "7"); !strings.Contains(out,
				"default via "+gateway+" dev eth0") {
				t.Errorf("table 7: %s", out)
			}
			if out := nettest.Run(t, ns, "ip", "route"); out != "" {
				t.Errorf("left in the main table: %s", out)
			}
			job.Prev = &result
			if err := n.Check(t.Context(), job); err != nil {
				t.Error(err)
			}
			if d := diff(result, n.add(job)); d != "" {
				t.Errorf("the same ADD again: %s", d)
			}
			nettest.Run(t, ns, "ip", "link", "set", "eth0", "nomaster")
			wantCode(t, "CHECK", n.Check(t.Context(), job), 102, "master blue")
			for range 2 {
				if err := n.Del(context.Background(), job); err != nil {
					t.Error(err)
				}
			}
			n.gone(ns, "eth0", "blue")
			_, _ = nettest.Try(nil, "ip", "link", "del", "abr0")
			n.unplug()
		})
	}
}
