// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

func TestRefusals(t *testing.T) {
	foreign := state.Link{Name: "br0", Kind: state.Bridge}
	for name, tc := range map[string]struct {
		in   Input
		code model.Code
		want []string
	}{
		"interface exists": {
			Input{Conf: confOf(`{"type":"bridge"}`), Answers: exists(state.Pod, state.Link{Name: "eth0"})},
			model.CodeExists,
			[]string{`"eth0"`, "/run/netns/c0ffee", "CNI_IFNAME"},
		},
		"ptp exists": {
			Input{
				Conf: confOf(`{"type":"ptp","ipam":{"type":"x"}}`), IPAM: v4(),
				Answers: exists(state.Pod, state.Link{Name: "eth0"}),
			}, model.CodeExists, []string{`"eth0"`},
		},
		"no bridge": {
			Input{
				Conf:    confOf(`{"type":"bridge","bridge":"br0"}`),
				Answers: exists(state.Host, state.Link{Name: "br0", Kind: "dummy"}),
			}, model.CodeInvalidConf, []string{`bridge "br0" exists and is not a bridge but a dummy`},
		},
		"address": {
			Input{
				Conf: confOf(`{"type":"bridge","bridge":"br0","isGateway":true,"ipam":{"type":"x"}}`), IPAM: v4(),
				Answers: exists(state.Host, foreign, "10.9.0.1/24"),
			}, model.CodeInvalidConf, []string{"10.9.0.1/24", "10.1.0.1/24", "forceAddress"},
		},
		"ptp gateway": {
			Input{
				Conf: confOf(`{"type":"ptp","ipam":{"type":"x"}}`), IPAM: &model.Result{IPs: []model.IP{ip("10.0.0.1/24", "")}},
			}, model.CodeInvalidConf, []string{"10.0.0.1/24 has no gateway"},
		},
		"no address": {
			Input{Conf: confOf(`{"type":"bridge","ipam":{"type":"x"}}`), IPAM: &model.Result{}},
			model.CodeInvalidConf,
			[]string{"no address"},
		},
		"families": {
			Input{
				Conf: confOf(`{"type":"bridge","ipam":{"type":"x"}}`),
				IPAM: &model.Result{IPs: []model.IP{ip("10.0.0.1/24", "fd00::1")}},
			}, model.CodeInvalidConf, []string{"different families"},
		},
		"own gateway": {
			Input{
				Conf: confOf(`{"type":"ptp","ipam":{"type":"x"}}`),
				IPAM: &model.Result{IPs: []model.IP{ip("10.0.0.1/24", "10.0.0.1")}},
			}, model.CodeInvalidConf, []string{"10.0.0.1/24 is its own gateway"},
		},
		"not loopback": {
			Input{
				Conf:    confOf(`{"type":"loopback"}`),
				Answers: exists(state.Pod, state.Link{Name: "lo", Up: state.On()}, "10.0.0.1/8"),
			}, model.CodeInternal, []string{"10.0.0.1/8"},
		},
		"ptp without ipam": {Input{Conf: confOf(`{"type":"ptp"}`)}, model.CodeInvalidConf, []string{"ipam.type is missing"}},
		"both modes": {
			Input{Conf: confOf(`{"type":"bridge","hairpinMode":true,"promiscMode":true}`)},
			model.CodeInvalidConf,
			[]string{"hairpinMode", "promiscMode"},
		},
		"bridge name": {
			Input{Conf: confOf(`{"type":"bridge","bridge":"a/b"}`)}, model.CodeInvalidConf, []string{`"a/b"`},
		},
		"mtu": {Input{Conf: confOf(`{"type":"bridge","mtu":20}`)}, model.CodeInvalidConf, []string{"mtu 20"}},
		"mtu type": {
			Input{Conf: confOf(`{"type":"bridge","mtu":"20"}`)}, model.CodeDecode, []string{"mtu is string, want int"},
		},
		"vlan type": {
			Input{Conf: confOf(`{"type":"bridge","vlan":"20"}`)}, model.CodeDecode, []string{"bridge: vlan is string, want int"},
		},
		"mac": {
			Input{Conf: confOf(`{"type":"bridge","runtimeConfig":{"mac":"zz"}}`)},
			model.CodeInvalidConf,
			[]string{"runtimeConfig.mac", "zz"},
		},
		"multicast mac": {
			Input{Conf: confOf(`{"type":"bridge","args":{"cni":{"mac":"01:00:00:00:00:01"}}}`)},
			model.CodeInvalidConf,
			[]string{"args.cni.mac", "unicast"},
		},
		"iptables absent": {
			Input{Conf: confOf(`{"type":"ptp","ipMasq":true,"ipMasqBackend":"iptables","ipam":{"type":"x"}}`), IPAM: v4()},
			model.CodeInvalidConf,
			[]string{`ipMasqBackend "iptables" needs the program iptables-restore`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.in.Request = request()
			_, err := Builtin()[tc.in.Conf.Type].Plan(tc.in)
			var f *model.Error
			if !errors.As(err, &f) || f.Code != tc.code {
				t.Fatalf("error %v, want code %d", err, tc.code)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
}

// TestOptionsAtTheirDefaultsAreAccepted uses a configuration that sets every option to its default.
func TestOptionsAtTheirDefaultsAreAccepted(t *testing.T) {
	conf := confOf(
		`{"type":"bridge","vlan":0,"vlanTrunk":[],"preserveDefaultVlan":false,"macspoofchk":false,"enabledad":false,
		"disableContainerInterface":false,"portIsolation":false,"ipMasqBackend":"nftables","hairpinMode":false,"promiscMode":false,"mtu":0}`)
	if err := Validate(Bridge{}, conf); err != nil {
		t.Error(err)
	}
}

func TestMACPrecedence(t *testing.T) {
	args := [][2]string{{"MAC", "02:00:00:00:00:01"}}
	for _, tc := range []struct{ conf, want string }{
		{`{"type":"bridge"}`, "02:00:00:00:00:01"},
		{`{"type":"bridge","args":{"cni":{"mac":"02:00:00:00:00:02"}}}`, "02:00:00:00:00:02"},
		{
			`{"type":"bridge","args":{"cni":{"mac":"02:00:00:00:00:02"}},"runtimeConfig":{"mac":"02:00:00:00:00:03"}}`,
			"02:00:00:00:00:03",
		},
	} {
		in := Input{Conf: confOf(tc.conf), Request: request()}
		in.Request.Args = args
		step, err := Bridge{}.Plan(in)
		if err != nil || step.Result.Interfaces[2].MAC != tc.want || step.Fragment.Pod.Links[0].MAC.String() != tc.want {
			t.Errorf("%s: %+v %v, want %s", tc.conf, step.Result.Interfaces, err, tc.want)
		}
	}
}

func TestUnknownArgs(t *testing.T) {
	in := Input{Conf: confOf(`{"type":"bridge"}`), Request: request()}
	in.Request.Args = [][2]string{{"K8S_POD_NAME", "p"}, {"FOO", "1"}}
	var f *model.Error
	if _, err := (Bridge{}).Observe(in); !errors.As(err, &f) || f.Code != model.CodeInvalidEnv ||
		!strings.Contains(f.Msg, "FOO") {
		t.Errorf("unknown key: %v", err)
	}
	in.Request.Args = append(in.Request.Args, [2]string{"IgnoreUnknown", "1"})
	if _, err := (Bridge{}).Observe(in); err != nil {
		t.Errorf("IgnoreUnknown: %v", err)
	}
}

// TestNamesNeverCollide: names and MAC addresses are valid, and differ between attachments.
func TestNamesNeverCollide(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		gen := rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,80}`)
		a := model.Request{
			Network: gen.Draw(rt, "net"), ContainerID: gen.Draw(rt, "id"),
			IfName: rapid.StringMatching(`[a-z0-9]{1,15}`).Draw(rt, "if"),
		}
		b := a
		b.ContainerID += "x"
		if len(HostName(a)) > 15 || HostName(a) == HostName(b) || HostName(a) != HostName(a) {
			rt.Fatalf("names %s %s", HostName(a), HostName(b))
		}
		p := newPair(a, 0, state.MAC{})
		if p.host.MAC == p.pod.MAC || p.host.MAC[0] != 0xfe || len(p.host.Alias) > 255 ||
			!strings.HasPrefix(p.host.Alias, "weft:") {
			rt.Fatalf("pair %v", p)
		}
	})
}

// TestEveryKeyOfTheStructIsKnown compares Keys with the structs.
func TestEveryKeyOfTheStructIsKnown(t *testing.T) {
	for name, p := range Builtin() {
		if p.Type() != name {
			t.Errorf("%s is under %s", p.Type(), name)
		}
		for _, k := range p.Keys() {
			if k == "" || strings.HasSuffix(k, ".") {
				t.Errorf("%s: key %q", name, k)
			}
		}
	}
}

// The undo of a plugin that set lo up sets it down; a lo that was up stays up.
func TestLoopbackRestores(t *testing.T) {
	for up, want := range map[*bool]int{state.Off(): 1, state.On(): 0} {
		step, err := Loopback{}.Plan(Input{
			Conf: confOf(`{"type":"loopback"}`), Answers: exists(state.Pod, state.Link{Name: "lo", Up: up}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := step.Restore.Pod.Links; len(got) != want || want == 1 && (got[0].Name != "lo" || *got[0].Up) {
			t.Errorf("lo was up %v: restores %+v", *up, got)
		}
	}
}
