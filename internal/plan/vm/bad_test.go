// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestRefused: errors that depend on the pod's state, with the field.
func TestRefused(t *testing.T) {
	const nic = "spec.domain.devices.interfaces[0]"
	changed := func(change func(*state.Answer)) state.Answers {
		a := answers(dual())
		l := a[link("eth0")]
		change(&l)
		a[link("eth0")] = l
		return a
	}
	with := func(name string) state.Answers {
		a := answers(flannels())
		a[link(name)] = state.Answer{Found: true, Link: state.Link{Name: name, Kind: state.Tap}}
		return a
	}
	uid := func(n uint32) *uint32 { return &n }
	left := func(tap state.Link) Input { // by a CNI plugin
		a := answers(flannels())
		tap.Name, tap.MTU = "tap0", 1400
		a[link("tap0")] = state.Answer{Found: true, Link: tap}
		return Input{VM: testVM(model.VMInterface{Name: "default", Binding: model.VMTap}), Answers: a}
	}
	reserved, twin, ten := masq(), bridged("blue"), bridged("default")
	twin.MAC = state.SeedMAC("eth0").String()
	ten.PodLink = "verylongname0"
	for name, c := range map[string]struct {
		in   Input
		code model.Code
		want string
	}{
		"no link": {
			Input{VM: testVM(reserved), Answers: answers()},
			model.CodeInvalidEnv,
			nic + `.name: network "default": the pod has no link eth0`,
		},
		"no device": {
			Input{VM: testVM(model.VMInterface{Name: "fast", Binding: model.VMSRIOV})},
			model.CodeInvalidEnv,
			nic + `.sriov: network "fast": the PCI address of its device is unknown`,
		},
		"tap there": {
			Input{VM: testVM(masq()), Answers: with("tap0")},
			model.CodeExists,
			nic + `.name: network "default": the pod already has a link tap0 (tun)`,
		},
		"bridge there": {
			Input{VM: testVM(bridged("default")), Answers: with("k6t-eth0")},
			model.CodeExists,
			nic + `.name: network "default": the pod already has a link k6t-eth0 (tun)`,
		},
		"moved there": {
			Input{VM: testVM(bridged("default")), Answers: with("eth0-nic")},
			model.CodeExists,
			nic + `.name: network "default": the pod already has a link eth0-nic (tun)`,
		},
		"tap of another": {
			left(state.Link{Kind: state.Tap, Tun: &state.TunAttrs{Owner: uid(1000)}}), model.CodeInvalidEnv,
			nic + `.binding: network "default": the pod's tap tap0 belongs to user 1000, the hypervisor runs as 107`,
		},
		"tap of a group": {
			left(state.Link{Kind: state.Tap, Tun: &state.TunAttrs{Owner: uid(107), Group: uid(5)}}), model.CodeInvalidEnv,
			nic + `.binding: network "default": the pod's tap tap0 belongs to group 5, the hypervisor runs as 107`,
		},
		"no tap": {
			left(state.Link{Kind: state.Veth}), model.CodeInvalidEnv,
			nic + `.binding: network "default": the pod's link tap0 is of kind veth, not a tap`,
		},
		"tap of one queue": {
			with4(left(state.Link{Kind: state.Tap, Tun: &state.TunAttrs{}})), model.CodeInvalidEnv,
			nic + `.binding: network "default": the pod's tap tap0 has multiple queues: false, the VM's interface: true`,
		},
		"tap of several": {
			left(state.Link{Kind: state.Tap, Tun: &state.TunAttrs{MultiQueue: true}}), model.CodeInvalidEnv,
			nic + `.binding: network "default": the pod's tap tap0 has multiple queues: true, the VM's interface: false`,
		},
		"little MTU": {
			Input{VM: testVM(masq()), Answers: changed(func(a *state.Answer) { a.Link.MTU = 60 })},
			model.CodeInvalidEnv,
			nic + `: the pod's link eth0 has an MTU of 60, which is too small for a guest`,
		},
		"MTU without IPv6": {
			Input{VM: testVM(masq()), Answers: changed(func(a *state.Answer) { a.Link.MTU = 1279 })},
			model.CodeInvalidEnv,
			nic + `: the pod's link eth0 has an MTU of 1279, IPv6 needs 1280`,
		},
		"macvlan": {
			Input{VM: testVM(bridged("default")), Answers: changed(func(a *state.Answer) { a.Link.Kind = state.Macvlan })},
			model.CodeInvalidEnv,
			nic + `.bridge: the pod's link eth0 is of kind macvlan, which cannot be a bridge port for a guest`,
		},
		"port": {
			Input{VM: testVM(bridged("default")), Answers: changed(func(a *state.Answer) { a.Link.Master = "br7" })},
			model.CodeInvalidEnv,
			nic + `.bridge: the pod's link eth0 is already a port of br7`,
		},
		"reserved MAC": {
			Input{VM: testVM(masq()), Answers: changed(func(a *state.Answer) { a.Link.MAC = bridgeMAC() })},
			model.CodeInvalidConf,
			nic + `.macAddress: 02:00:00:00:00:00 is the address of the bridge in the pod`,
		},
		"twice": {
			Input{VM: testVM(masq(), twin), Answers: answers(flannels(), podLink{name: "pod16477688c0e"})},
			model.CodeInvalidConf,
			`spec.domain.devices.interfaces[1].macAddress: ` + state.SeedMAC("eth0").String() +
				` is the address of interface "default" already`,
		},
		"long name": {
			Input{VM: testVM(ten), Answers: answers()},
			model.CodeInvalidConf,
			nic +
				`.name: the pod's link verylongname0 has too long a name: k6t-verylongname0 would have 17 letters, at most 15 are possible`,
		},
		"subnet": {
			Input{VM: testVM(masq()), Answers: answers(podLink{"eth0", []string{"10.0.2.9/24"}, nil})},
			model.CodeInvalidConf,
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/24 overlaps the pod's own 10.0.2.9/24 on eth0`,
		},
		"subnet of one": {
			Input{VM: testVM(masq()), Answers: answers(podLink{"eth0", []string{"10.0.2.9/32"}, nil})},
			model.CodeInvalidConf,
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/24 overlaps the pod's own 10.0.2.9/32 on eth0`,
		},
		"wide subnet": {
			Input{VM: testVM(masq()), Answers: answers(podLink{"eth0", []string{"10.9.0.9/8"}, nil})},
			model.CodeInvalidConf,
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/24 overlaps the pod's own 10.9.0.9/8 on eth0`,
		},
		"subnet6": {
			Input{VM: testVM(masq()), Answers: answers(podLink{"eth0", []string{"fd10:0:2::9/64"}, nil})},
			model.CodeInvalidConf,
			`spec.networks[0].pod.vmIPv6NetworkCIDR: fd10:0:2::/120 overlaps the pod's own fd10:0:2::9/64 on eth0`,
		},
		"gateway": {
			Input{
				VM: testVM(masq()), Answers: answers(podLink{"eth0", []string{"10.244.0.9/32"}, []string{"0.0.0.0/0 10.0.2.254"}}),
			},
			model.CodeInvalidConf,
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/24 holds the pod's gateway 10.0.2.254`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.in)
			var fault *model.Error
			if !errors.As(err, &fault) || fault.Msg != c.want || fault.Code != c.code {
				t.Errorf("\n got %v\nwant %s (code %d)", err, c.want, c.code)
			}
		})
	}
}

func with4(in Input) Input {
	in.VM.Queues = 4
	return in
}

// TestTapMTU: a guest sends nothing that is too long for its tap.
func TestTapMTU(t *testing.T) {
	a := answers(flannels())
	for mtu, want := range map[int]int{0: 1450, 1400: 1400, 9000: 1450} {
		a[link("tap0")] = state.Answer{Found: true, Link: state.Link{Name: "tap0", Kind: state.Tap, MTU: mtu}}
		p, err := New(Input{VM: testVM(model.VMInterface{Name: "default", Binding: model.VMTap}), Answers: a})
		if err != nil || p.Networks[0].Device.MTU != want || p.Networks[0].Device.Target != "tap0" {
			t.Errorf("MTU of the tap %d: %+v (%v)", mtu, p.Networks, err)
		}
	}
}

// TestMerged: the ranges have exactly the original ports, and no two of them are adjacent.
func TestMerged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ports []model.VMPortRange
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			first := rapid.Uint16Range(1, 40).Draw(t, "first")
			ports = append(ports, model.VMPortRange{
				Protocol: rapid.SampledFrom([]string{"tcp", "udp"}).Draw(t, "protocol"), First: first,
				Last: first + rapid.Uint16Range(0, 5).Draw(t, "more"),
			})
		}
		out := merged(ports, "tcp")
		for port := range uint16(50) {
			if holds(out, "tcp", port) != holds(ports, "tcp", port) {
				t.Fatalf("port %d of %v in %v", port, ports, out)
			}
		}
		for i := 1; i < len(out); i++ {
			if out[i].First <= out[i-1].Last+1 {
				t.Fatalf("%v touch", out)
			}
		}
	})
}
