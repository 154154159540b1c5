// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestDirectRefused: guests with another MAC than the network's, links that cannot be joined, gateways that do not
// answer.
func TestDirectRefused(t *testing.T) {
	const nic = "spec.domain.devices.interfaces[0]"
	link0 := func(change func(*state.Answer)) state.Answers {
		a := near(dual())
		l := a[link("eth0")]
		change(&l)
		a[link("eth0")] = l
		return a
	}
	other := joined("default")
	other.MAC = "02:00:00:00:00:77"
	silent := near(dual())
	silent[gateways("eth0")] = state.Answer{Found: true}
	with := near(flannels())
	with[link("tap0")] = state.Answer{Found: true, Link: state.Link{Name: "tap0", Kind: state.Tap}}
	for name, c := range map[string]struct {
		in   Input
		code model.Code
		want string
	}{
		"another MAC": {
			Input{VM: testVM(other), Answers: link0(func(a *state.Answer) { a.Link.Kind = state.Macvlan })},
			model.CodeInvalidConf,
			nic + ".macAddress: 02:00:00:00:00:77 is not the pod's address on eth0 (" + state.SeedMAC("eth0").String() +
				"), by which the network knows the guest",
		},
		"ipvlan": {
			Input{VM: testVM(joined("default")), Answers: link0(func(a *state.Answer) { a.Link.Kind = state.Ipvlan })},
			model.CodeInvalidEnv,
			nic + ".binding: the pod's link eth0 is of kind ipvlan, which cannot be joined to a guest's tap",
		},
		"port": {
			Input{VM: testVM(joined("default")), Answers: link0(func(a *state.Answer) { a.Link.Master = "br7" })},
			model.CodeInvalidEnv,
			nic + ".binding: the pod's link eth0 is already a port of br7",
		},
		"silent gateway": {
			Input{VM: testVM(joined("default")), Answers: silent},
			model.CodeTryAgain,
			nic + `: network "default": the pod's gateway fd00:1::1 on eth0 does not answer`,
		},
		"little MTU": {
			Input{VM: testVM(joined("default")), Answers: link0(func(a *state.Answer) { a.Link.MTU = 1279 })},
			model.CodeInvalidEnv,
			nic + ": the pod's link eth0 has an MTU of 1279, IPv6 needs 1280",
		},
		"tap there": {
			Input{VM: testVM(joined("default")), Answers: with},
			model.CodeExists,
			nic + `.name: network "default": the pod already has a link tap0 (tun)`,
		},
		"subnet": {
			Input{VM: testVM(joined("default")), Answers: answers(routed()), SubnetBits: 24},
			model.CodeTryAgain,
			nic + `: network "default": the pod's gateway 169.254.1.1 on eth0 does not answer`,
		},
		"no manifest": {
			Input{VM: testVM(other), Answers: near(flannels()), ErrorPrefix: "plugin weft-direct"},
			model.CodeInvalidConf,
			"plugin weft-direct: 02:00:00:00:00:77 is not the pod's address on eth0 (" + state.SeedMAC("eth0").String() +
				"), by which the network knows the guest",
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
