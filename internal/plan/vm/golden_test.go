// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel/nft/lang"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

var update = flag.Bool("update", false, "update the golden files")

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// testVM returns a VM with the given interfaces and default values.
func testVM(nics ...model.VMInterface) model.VM {
	vm := model.VM{Namespace: "shop", Name: "vm1", Path: "spec", Owner: 107, Hostname: "vm1", Interfaces: nics}
	for i := range vm.Interfaces {
		n := &vm.Interfaces[i]
		n.Index, n.Network.Index, n.Network.Name = i, i, n.Name
		if n.Model == "" {
			n.Model = "virtio"
		}
		if n.Name == "default" {
			n.Network.Primary, n.Network.Pod = true, true
			n.Network.CIDR4, n.Network.CIDR6 = prefix("10.0.2.0/24"), prefix("fd10:0:2::/120")
		}
	}
	return vm
}

// podLink is an interface of a pod: its name, an MTU of 1450, addresses, and routes as "DST" or "DST GATEWAY".
type podLink struct {
	name   string
	addrs  []string
	routes []string
}

func answers(links ...podLink) state.Answers {
	out := state.Answers{
		setting(arpIgnore): {Found: true, Value: "0"}, setting(forward4): {Found: true, Value: "0"},
		setting(forward6): {Found: true, Value: "0"},
	}
	for _, l := range links {
		a := state.Answer{Found: true, Link: state.Link{
			Name: l.name, Kind: state.Veth, MAC: state.SeedMAC(l.name), MTU: 1450, Up: state.On(),
			Alias: "weft:net/c0ffee/" + l.name,
			Peer:  &state.Peer{Space: state.Host, Name: "veth1"}, Port: &state.PortAttrs{Hairpin: state.Off()},
		}}
		for _, s := range l.addrs {
			a.Addrs = append(a.Addrs, state.Addr{Link: l.name, Prefix: prefix(s)})
		}
		r := state.Answer{Found: true}
		for _, s := range l.routes {
			dst, gw, _ := strings.Cut(s, " ")
			route := state.Route{Dst: prefix(dst), Link: l.name, Protocol: 119}
			if gw != "" {
				route.Gw = netip.MustParseAddr(gw)
			}
			r.Routes = append(r.Routes, route)
		}
		out[link(l.name)], out[routes(l.name)] = a, r
		out[setting(disableIPv6(l.name))] = state.Answer{Found: true, Value: "0"}
	}
	return out
}

// tapped makes a link a macvtap.
func tapped(in state.Answers, name string) state.Answers {
	a := in[link(name)]
	a.Link.Kind, a.Link.Peer, a.Link.Port, a.Link.Alias = state.Macvtap, nil, nil, ""
	in[link(name)] = a
	return in
}

// flannels is a pod on flannel's bridge, routed one of a network without a bridge, whose gateway is not in its subnet.
func flannels() podLink {
	return podLink{"eth0", []string{"10.244.1.5/24"}, []string{"0.0.0.0/0 10.244.1.1", "10.244.0.0/16 10.244.1.1"}}
}

func routed() podLink {
	return podLink{"eth0", []string{"10.244.1.5/32"}, []string{"169.254.1.1/32", "0.0.0.0/0 169.254.1.1"}}
}

func dual() podLink {
	l := flannels()
	l.addrs, l.routes = append(l.addrs, "fd00:1::5/64"), append(l.routes, "::/0 fd00:1::1")
	return l
}

func v6() podLink { return podLink{"eth0", []string{"fd00:1::5/64"}, []string{"::/0 fd00:1::1"}} }

func masq(ports ...model.VMPortRange) model.VMInterface {
	return model.VMInterface{Name: "default", Binding: model.VMMasquerade, Ports: ports}
}

func bridged(name string) model.VMInterface {
	return model.VMInterface{Name: name, Binding: model.VMBridge}
}

func joined(name string) model.VMInterface {
	return model.VMInterface{Name: name, Binding: model.VMDirect, Plugin: "weft-direct"}
}

// single is a routed pod with addresses of both families.
func single() podLink {
	l := routed()
	l.addrs, l.routes = append(l.addrs, "fd00:1::5/128"), append(l.routes, "::/0 fe80::ecee:eeff:feee:eeee")
	return l
}

// near is answers with the gateways' MAC addresses.
func near(links ...podLink) state.Answers {
	out := answers(links...)
	for _, l := range links {
		a := state.Answer{Found: true}
		for _, r := range out[routes(l.name)].Routes {
			if r.Gw.IsValid() {
				a.Neighs = append(a.Neighs, state.Neigh{Link: l.name, IP: r.Gw, MAC: state.MAC{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}})
			}
		}
		out[gateways(l.name)] = a
	}
	return out
}

// standIn is answers of a pod whose guest's tap is on the node.
func standIn(l podLink) state.Answers {
	out := answers(l)
	a := out[link(l.name)]
	a.Link.Kind, a.Link.Peer, a.Link.Tun = state.Tap, nil, &state.TunAttrs{}
	out[link(l.name)] = a
	out[otherEnd(l.name)] = state.Answer{
		Found: true, Link: state.Link{Name: "cali1234", Kind: state.Tap, Tun: &state.TunAttrs{}},
	}
	return out
}

func clusterDNS() model.DNS {
	return model.DNS{
		Nameservers: []string{"10.96.0.10", "fd00:96::a"},
		Search:      []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"},
	}
}

func goldens() map[string]Input {
	web := []model.VMPortRange{
		{Protocol: "tcp", First: 80, Last: 80},
		{Protocol: "udp", First: 53, Last: 53},
		{Protocol: "tcp", First: 22, Last: 22},
	}
	ranges := []model.VMPortRange{{Protocol: "tcp", First: 8000, Last: 8099}, {Protocol: "udp", First: 5000, Last: 5001}}
	with := func(vm model.VM, change func(*model.VM)) model.VM { change(&vm); return vm }
	mesh := func(vm *model.VM) { vm.ServiceMesh = true }
	own := masq()
	own.MAC = "de:ad:00:00:be:af"
	options := bridged("default")
	options.DHCP = model.VMDHCP{
		BootFileName: "pxe.0", TFTPServerName: "tftp.example", NTPServers: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		Private: []model.VMDHCPOption{{Option: 240, Value: "extra"}},
	}
	blue := "pod16477688c0e" // sha256("blue")
	given := with(testVM(own), func(vm *model.VM) {
		vm.Interfaces[0].Network.CIDR4, vm.Interfaces[0].Network.CIDR6 = prefix("10.11.12.0/24"), prefix("fd10:11::/120")
	})
	return map[string]Input{
		"masquerade4":       {VM: testVM(masq()), Answers: answers(flannels()), DNS: clusterDNS()},
		"masquerade6":       {VM: testVM(masq()), Answers: answers(v6()), DNS: clusterDNS()},
		"masquerade-dual":   {VM: testVM(masq()), Answers: answers(dual()), DNS: clusterDNS()},
		"masquerade-routed": {VM: testVM(masq()), Answers: answers(routed()), DNS: clusterDNS()},
		"masquerade-ports":  {VM: testVM(masq(web...)), Answers: answers(dual())},
		"masquerade-ranges": {VM: testVM(masq(ranges...)), Answers: answers(flannels())},
		"masquerade-migration": {
			VM:      with(testVM(masq()), func(vm *model.VM) { vm.MigrationPorts = []uint16{49152, 49153} }),
			Answers: answers(dual()),
		},
		"masquerade-mesh":       {VM: with(testVM(masq()), mesh), Answers: answers(dual())},
		"masquerade-mesh-ports": {VM: with(testVM(masq(web...)), mesh), Answers: answers(dual())},
		"masquerade-given":      {VM: given, Answers: answers(dual()), SoftChecksums: true},
		"bridge-flannel": {
			VM: with(testVM(options), func(vm *model.VM) { vm.Subdomain = "db" }), Answers: answers(flannels()),
			DNS: clusterDNS(),
		},
		"bridge-routed": {
			VM: testVM(bridged("default")), Answers: answers(routed()), DNS: clusterDNS(), StandIn: state.Bridge,
		},
		"bridge-dual": {
			VM: with(testVM(bridged("default")), func(vm *model.VM) { vm.Queues = 4 }), Answers: answers(dual()),
			DNS: clusterDNS(), SoftChecksums: true,
		},
		"bridge6":       {VM: testVM(bridged("default")), Answers: answers(v6())},
		"bridge-layer2": {VM: testVM(masq(), bridged("blue")), Answers: answers(flannels(), podLink{name: blue})},
		"bridge-ordinal": {
			VM: testVM(masq(), bridged("blue")), OrdinalNames: true,
			Answers: answers(flannels(), podLink{"net1", []string{"192.0.2.5/24"}, nil}),
		},
		"direct-flannel": {VM: testVM(joined("default")), Answers: near(dual()), DNS: clusterDNS()},
		"direct-routed": {
			VM: with(testVM(joined("default")), func(vm *model.VM) { vm.Queues = 4 }), Answers: near(single()),
			DNS: clusterDNS(),
		},
		"direct-subnet": {VM: testVM(joined("default")), Answers: near(routed()), SubnetBits: 24, Join: state.JoinMirred},
		"direct-no-router": {
			VM: testVM(joined("default")), Answers: near(podLink{"eth0", []string{"fd00:1::5/64"}, nil}),
		},
		"direct-several": {VM: testVM(joined("default"), joined("blue")), Answers: near(flannels(), podLink{name: blue})},
		"direct-node":    {VM: testVM(joined("default")), Answers: standIn(routed())},
		"macvtap": {
			VM: testVM(masq(), model.VMInterface{Name: "blue", Binding: model.VMMacvtap}),
			Answers: tapped(
				answers(flannels(), podLink{blue, []string{"192.0.2.5/24", "fd00:2::5/64"}, []string{"::/0 fe80::7"}}), blue,
			),
		},
		"several": {
			VM: with(testVM(
				masq(), model.VMInterface{Name: "blue", Binding: model.VMManagedTap, Plugin: "mine", Model: "e1000"},
				model.VMInterface{Name: "fast", Binding: model.VMSRIOV, MAC: "02:00:00:00:00:77"},
				model.VMInterface{Name: "own", Binding: model.VMMacvtap, Down: true},
				model.VMInterface{Name: "gone", Binding: model.VMBridge, Absent: true},
			), func(vm *model.VM) { vm.Queues = 2 }),
			Answers: answers(flannels(), podLink{blue, []string{"192.0.2.5/24"}, nil}, podLink{name: "pod5b3975651c3"}),
			Devices: map[string]string{"fast": "0000:03:02.1"},
		},
	}
}

// TestGolden compares the plans with what is on paper, and each answer that a plan needs with what it asked for.
func TestGolden(t *testing.T) {
	for name, in := range goldens() {
		t.Run(name, func(t *testing.T) {
			asked := map[state.Query]bool{}
			for _, q := range Observe(in) {
				asked[q] = true
			}
			for q, a := range in.Answers {
				if a.Found && !asked[q] && q.Sysctl == "" {
					t.Errorf("it did not ask %+v", q)
				}
			}
			p, err := New(in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Text(lang.Text)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-%s +got):\n%s", file, d)
			}
			again, err := New(in)
			if err != nil || cmp.Diff(mustJSON(t, p), mustJSON(t, again)) != "" {
				t.Errorf("a second plan differs (%v)", err)
			}
		})
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
