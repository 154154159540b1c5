// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/vm/phase1"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// The plugins for the cluster's network. The secondary network is a bridge without addresses.
const (
	flannel = `{"type":"bridge","bridge":"cni0","isGateway":true,"isDefaultGateway":true,"hairpinMode":true,"ipam":IPAM}`
	routed  = `{"type":"calico","mtu":1500,"ipam":IPAM}`
	hostTap = `{"type":"calico","mtu":1500,"host_tap":{},"ipam":IPAM}`
	layer2  = `{"type":"bridge","bridge":"br-blue"}`
)

const (
	subnet4, subnet6 = "10.244.1.0/24", "fd00:1::/64"
	blueLink         = "pod16477688c0e" // KubeVirt's name for blue's link
)

// site is a way to attach pods, and VMs' pods if it differs, with the bindings that it supports.
type site struct {
	conf, vmConf string
	bindings     []model.VMBinding
}

// sites are all ways. SR-IOV, which needs a whole device, has golden files.
func sites() map[string]site {
	all := []model.VMBinding{model.VMMasquerade, model.VMBridge, model.VMManagedTap, model.VMDirect}
	return map[string]site{
		"flannel": {flannel, flannel, all}, "routed": {routed, routed, all},
		"tap on the node": {routed, hostTap, []model.VMBinding{model.VMDirect}},
		"macvtap":         {flannel, foreignMacvtap, []model.VMBinding{model.VMMacvtap}},
	}
}

// families returns the pods' subnets by IP family.
func families() map[string][]string {
	return map[string][]string{"IPv4": {subnet4}, "IPv6": {subnet6}, "dual": {subnet4, subnet6}}
}

// world is a node, in the network namespace of the test, with pods.
type world struct {
	*attach.Attacher
	t *testing.T
	site
	data string
	n    int
	// plugins is the directory of third-party plugins.
	plugins string
	phase1.Config
}

// planners are the plugins that are built into the agent; macvtap is a third party's.
func planners() map[string]plugin.Planner {
	all := plugin.InAgent()
	delete(all, plugin.MacvtapType)
	return all
}

// newWorld returns a node whose pods are attached by a plugin, with addresses of some subnets.
func newWorld(t *testing.T, by site, subnets ...string) *world {
	return newEnforced(t, by, nil, subnets...)
}

// newEnforced returns a node that enforces policy.
func newEnforced(t *testing.T, by site, newEnforcer func(*kernel.Conn) attach.PolicyEnforcer, subnets ...string) *world {
	t.Helper()
	nettest.Need(t, "tap")
	host, err := kernel.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	host.Programs = redirect.Joins{}
	store, err := ledger.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	reaper := kernel.NewReaper(host, log)
	w := &world{
		t: t, data: t.TempDir(), plugins: plugins(t), Config: phase1.Config{Dir: filepath.Join(t.TempDir(), "vm"), Log: log},
	}
	var ranges []string
	for _, s := range subnets {
		ranges = append(ranges, fmt.Sprintf(`[{"subnet":%q}]`, s))
	}
	addresses := strings.NewReplacer("IPAM",
		fmt.Sprintf(`{"type":"host-local","dataDir":%q,"ranges":[%s]}`, w.data, strings.Join(ranges, ",")))
	w.site = site{addresses.Replace(by.conf), addresses.Replace(by.vmConf), by.bindings}
	var policyEnforcer attach.PolicyEnforcer
	if newEnforcer != nil {
		policyEnforcer = newEnforcer(host)
	}
	w.Attacher = attach.New(attach.Config{
		Policy: policyEnforcer, Records: store, Host: host, Planners: planners(), Reaper: reaper, Now: time.Now,
		Boot: "this boot", Log: log,
		Allocators: map[string]ipam.Allocator{
			"host-local": hostlocal.New(hostlocal.Config{CallerKnows: true}), "static": static.New(),
		},
		Linger: 20 * time.Millisecond, Exec: &foreign.Runner{Env: os.Environ()},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = reaper.Run(ctx) }()
	t.Cleanup(func() {
		drain, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		_ = w.Drain(drain)
		cancel()
		<-done
		if err := errors.Join(store.Close(), host.Close()); err != nil {
			t.Error(err)
		}
		for _, link := range []string{"cni0", "br-blue", "uplink"} {
			_, _ = nettest.Try(nil, "ip", "link", "del", link)
		}
		nettest.Run(t, nil, "nft", "flush", "ruleset")
	})
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	// With a default route the node answers ARP for the gateway of routed pods (proxy ARP).
	for _, line := range []string{
		"link add uplink type veth peer name wire", "link set uplink up", "link set wire up",
		"addr add 192.168.7.2/24 dev uplink",
		"route add default via 192.168.7.1",
	} {
		nettest.IP(t, nil, line)
	}
	for _, key := range []string{
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0",
		"net.ipv4.conf.default.rp_filter=0",
	} {
		nettest.Run(t, nil, "sysctl", "-qw", key)
	}
	return w
}

// pod is a pod with an interface on the cluster's network, and optionally one on blue.
type pod struct {
	ns    *netns.NS
	id    string
	mac   string
	addrs []netip.Prefix
	jobs  []attach.Job

	vm bool
}

// pod creates and attaches a pod; the attachments of a VM's pod have WEFT_VM.
func (w *world) pod(secondary, vm bool) *pod {
	w.t.Helper()
	w.n++
	p := &pod{id: fmt.Sprintf("pod%d", w.n), vm: vm}
	p.ns = nettest.NS(w.t, p.id)
	nettest.Run(w.t, p.ns, "ip", "link", "set", "lo", "up")
	conf := w.conf
	if vm {
		conf = w.vmConf
	}
	r := w.attach(p, "net", conf, "eth0")
	for _, ip := range r.IPs {
		p.addrs = append(p.addrs, ip.Address)
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			p.mac = i.MAC
		}
	}
	if secondary {
		w.attach(p, "blue", layer2, blueLink)
	}
	return p
}

// attach attaches a pod to a network.
func (w *world) attach(p *pod, network, conf, link string) model.Result {
	w.t.Helper()
	n, err := cni.ParseNetwork(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":%q,"plugins":[%s]}`, network, conf))
	if err != nil {
		w.t.Fatal(err)
	}
	if n, err = cni.Derive(n, nil, nil); err != nil {
		w.t.Fatal(err)
	}
	job := attach.Job{Network: n, Netns: p.ns, Request: model.Request{
		Network: n.Name, CNIVersion: n.CNIVersion, ContainerID: p.id, IfName: link, Netns: p.ns.Path(),
		CNIPath: []string{w.plugins},
		Args:    [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", p.id}},
	}}
	if network != "net" {
		job.Request.Origin = &model.Origin{Pod: model.PodRef{Namespace: "shop", Name: p.id}, Network: "shop/" + network}
	}
	if p.vm {
		job.Request.Args = append(job.Request.Args, [2]string{"IgnoreUnknown", "1"}, [2]string{"WEFT_VM", "shop/" + p.id})
	}
	r, err := w.Add(w.t.Context(), job)
	if err != nil {
		w.t.Fatalf("ADD: %v", err)
	}
	p.jobs = append(p.jobs, job)
	w.t.Cleanup(func() {
		if err := w.Del(context.Background(), job); err != nil {
			w.t.Errorf("DEL: %v", err)
		}
	})
	return r
}

// testInput returns a VM with bindings: the first one on the cluster's network, the second on blue.
func testInput(bindings ...model.VMBinding) plan.Input {
	vm := model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Hostname: "vm1"}
	for i, b := range bindings {
		nic := model.VMInterface{Name: "default", Index: i, Binding: b, Model: "virtio"}
		nic.Network = model.VMNetwork{
			Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.0.2.0/24"),
			CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
		}
		if i > 0 {
			nic.Name, nic.Network = "blue", model.VMNetwork{Name: "blue", Index: i, Definition: "blue"}
		}
		vm.Interfaces = append(vm.Interfaces, nic)
	}
	return plan.Input{VM: vm}
}

// guest is a VM's side of one of its interfaces.
type guest struct {
	*netns.NS
	mac   string
	addrs []netip.Addr
}

// boot starts a VM in a pod, with a relay instead of a hypervisor, and returns a guest for each interface.
func (w *world) boot(p *pod, in plan.Input) []guest {
	w.t.Helper()
	r, err := w.Start(w.t.Context(), p.ns, p.id, in)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.Undo(context.Background(), p.ns, p.id, in.VM.Key()); err != nil {
			w.t.Errorf("undo: %v", err)
		}
	})
	var out []guest
	for i, n := range r.Networks {
		g := guest{NS: nettest.NS(w.t, fmt.Sprintf("%s-guest%d", p.id, i)), mac: n.Device.MAC}
		nettest.Run(w.t, g.NS, "ip", "link", "set", "lo", "up")
		at := p.ns
		if n.Device.OnNode {
			at = nil
		}
		if n.Interface.Binding == model.VMMacvtap {
			relayMacvtap(w.t, at, n.Device.Target, g.NS, n.Device.MAC)
		} else {
			nettest.Relay(w.t, at, n.Device.Target, n.Device.Queues > 1, g.NS, n.Device.MAC)
		}
		g.ip(w.t, fmt.Sprintf("link set eth0 mtu %d", n.Device.MTU))
		g.ip(w.t, "route add 224.0.0.0/4 dev eth0") // the link is up
		switch {
		case i > 0:
		case n.Interface.Binding == model.VMMasquerade:
			g.configure(w.t, *n.Guest)
		default:
			g.configureAsPod(w.t, p, w.conf)
		}
		out = append(out, g)
	}
	return out
}

func (g *guest) ip(t *testing.T, line string) {
	t.Helper()
	nettest.IP(t, g.NS, line)
}

// configure configures the guest as its GuestConfig says.
func (g *guest) configure(t *testing.T, guestConfig model.GuestConfig) {
	t.Helper()
	if d := guestConfig.DHCP4; d != nil {
		g.ip(t, fmt.Sprintf("addr add %s dev eth0", d.Address))
		g.ip(t, "route add default via "+d.Router.String())
		g.addrs = append(g.addrs, d.Address.Addr())
	}
	if d := guestConfig.DHCP6; d != nil {
		g.ip(t, fmt.Sprintf("addr add %s/128 dev eth0 nodad", d.Address))
		g.ip(t, "route add default via fe80::1 dev eth0")
		g.addrs = append(g.addrs, d.Address)
	}
}

// configureAsPod configures the guest with the pod's addresses.
func (g *guest) configureAsPod(t *testing.T, p *pod, conf string) {
	t.Helper()
	for _, a := range p.addrs {
		g.ip(t, fmt.Sprintf("addr add %s dev eth0%s", a, map[bool]string{true: " nodad"}[a.Addr().Is6()]))
		g.addrs = append(g.addrs, a.Addr())
		gw := a.Masked().Addr().Next().String()
		if strings.Contains(conf, "calico") {
			if gw = "169.254.1.1"; a.Addr().Is6() {
				gw = routerOf(t, a.Addr())
			}
			g.ip(t, "route add "+gw+" dev eth0")
		}
		g.ip(t, "route add default via "+gw+" dev eth0")
	}
}

// routerOf returns the link-local address of the node's end of a routed pod.
func routerOf(t *testing.T, a netip.Addr) string {
	t.Helper()
	f := strings.Fields(nettest.Run(t, nil, "ip", "-6", "route", "get", a.String()))
	for i, word := range f {
		if word == "src" && i+1 < len(f) && strings.HasPrefix(f[i+1], "fe80:") {
			return f[i+1]
		}
	}
	t.Fatalf("no router of %s: %v", a, f)
	return ""
}
