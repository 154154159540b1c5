// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/plan/plugin"
)

func allocators() map[string]ipam.Allocator {
	return map[string]ipam.Allocator{"host-local": hostlocal.New(hostlocal.Config{}), "static": static.New()}
}

func TestLint(t *testing.T) {
	list := func(plugins string) string { return `{"cniVersion":"1.0.0","name":"n","plugins":[` + plugins + `]}` }
	const hl = `"ipam":{"type":"host-local","subnet":"10.0.0.0/24"}`
	for name, tc := range map[string]struct {
		conf string
		want []string
	}{
		"clean bridge": {
			conf: list(`{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"dns":{"nameservers":["1.1.1.1"]},` + hl +
				`},{"type":"elsewhere","capabilities":{"portMappings":true},"whatever":1}`),
		},
		"clean ptp": {conf: `{"cniVersion":"0.2.0","name":"n","type":"ptp","mtu":1400,` + hl + `}`},
		"clean static": {
			conf: list(
				`{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"10.0.0.5/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0","mtu":1400}]}}`,
			),
		},
		"clean flannel": {
			conf: list(
				`{"type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true},"ipam":{"dataDir":"/d"}},{"type":"portmap","capabilities":{"portMappings":true}}`,
			),
		},
		"flannel": {
			conf: list(`{"type":"flannel","subnetfile":"/x","delegate":{"hairpinMod":true}}`),
			want: []string{
				`unknown key "subnetfile" (did you mean subnetFile?)`,
				`plugins[0] flannel: unknown key "delegate.hairpinMod" (did you mean delegate.hairpinMode?)`,
			},
		},
		"flannel, ptp": {
			conf: list(`{"type":"flannel","delegate":{"type":"ptp","hairpinMode":true}}`),
			want: []string{`unknown key "delegate.hairpinMode"`},
		},
		"flannel and": {
			conf: list(`{"type":"flannel","delegate":{"type":"theirs","what":1}},{"type":"bridge"}`),
			want: []string{"a second plugin that makes the container's interface"},
		},
		"list key": {
			conf: `{"cniVersion":"1.0.0","name":"n","disablecheck":true,"plugins":[{"type":"loopback"}]}`,
			want: []string{`unknown key "disablecheck" (did you mean disableCheck?)`},
		},
		"typo": {
			conf: list(`{"type":"bridge","isDefaultGatway":true,` + hl + `}`),
			want: []string{`plugins[0] bridge: unknown key "isDefaultGatway" (did you mean isDefaultGateway?)`},
		},
		"swapped": {conf: list(`{"type":"ptp","mut":1400,` + hl + `}`), want: []string{`(did you mean mtu?)`}},
		"misplaced": {
			conf: list(`{"type":"ptp","subnet":"10.0.0.0/24",` + hl + `}`), want: []string{`(did you mean ipam.subnet?)`},
		},
		"misplaced up": {
			conf: list(`{"type":"ptp","ipam":{"type":"host-local","subnet":"10.0.0.0/24","ipMasq":true}}`),
			want: []string{`did you mean ipMasq (of the plugin itself)?`},
		},
		"nested": {
			conf: list(`{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24","gatway":"10.0.0.1"}]]}}`),
			want: []string{`"ipam.ranges[][].gatway" (did you mean gateway?)`},
		},
		"no idea": {conf: list(`{"type":"ptp","frobnicate":1,` + hl + `}`), want: []string{`unknown key "frobnicate"`}},
		"twice": {
			conf: list(`{"type":"ptp","mtu":1,"mtu":1400,` + hl + `}`), want: []string{`key "plugins[0].mtu" is there twice`},
		},
		"reserved": {
			conf: list(`{"type":"ptp","runtimeConfig":{},"cni.dev/x":1,` + hl + `}`),
			want: []string{`"cni.dev/x" is reserved for the protocol`, `"runtimeConfig" is reserved for the runtime`},
		},
		"contradict": {
			conf: list(`{"type":"bridge","isGateway":false,"isDefaultGateway":true,` + hl + `}`),
			want: []string{"isGateway false contradicts isDefaultGateway true"},
		},
		"no effect": {
			conf: list(`{"type":"bridge","ipMasq":true,"forceAddress":true}`),
			want: []string{"ipMasq has no effect without ipam", "forceAddress has no effect without isGateway"},
		},
		"no vlan": {
			conf: list(`{"type":"bridge","preserveDefaultVlan":true,"enabledad":true}`),
			want: []string{
				"preserveDefaultVlan has no effect without vlan and vlanTrunk", "enabledad has no effect without ipam",
			},
		},
		"vlan twice": {
			conf: list(`{"type":"bridge","vlan":5,"vlanTrunk":[{"minID":4,"maxID":6}]}`),
			want: []string{"vlan 5 is in vlanTrunk, too: its frames are untagged (take it out of vlanTrunk)"},
		},
		"no vlan in the trunk": {
			conf: list(`{"type":"bridge","vlanTrunk":[{"id":1},{}]}`),
			want: []string{"vlanTrunk[1] names no VLAN"},
		},
		"no vlanId": {
			conf: list(`{"type":"vlan","master":"ens5",` + hl + `}`),
			want: []string{"vlanId is missing: frames have a priority and no VLAN"},
		},
		"several devices": {
			conf: list(`{"type":"host-device","device":"ens5","hwaddr":"02:00:00:00:00:05"}`),
			want: []string{"hwaddr has no effect together with device, which names the device"},
		},
		"no ipam type": {
			conf: list(`{"type":"bridge","ipam":{"subnet":"10.0.0.0/24"}}`),
			want: []string{`ipam has no type: it has no effect (add "type", for example "host-local")`},
		},
		"two makers": {
			conf: list(`{"type":"ptp",` + hl + `},{"type":"bridge"}`),
			want: []string{"a second plugin that makes the container's interface"},
		},
		"gateway": {
			conf: list(`{"type":"ptp","ipam":{"type":"host-local","subnet":"10.0.0.0/24","gateway":"10.9.0.1"}}`),
			want: []string{"gateway 10.9.0.1 is not in subnet 10.0.0.0/24"},
		},
		"foreign ipam": {
			conf: list(`{"type":"ptp","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`),
			want: []string{`ipam.type "whereabouts" is none of weft's own`},
		},
		"a configuration of Multus": {
			conf: list(`{"type":"multus","kubeconfig":"/k","retryDeleteOnError":false,"daemonSocketDir":"/run/multus/",
				"logFile":"multus.log","logLevel":"Panic","logToStderr":false,"logOptions":{"maxAge":1},
				"delegates":[{"name":"d","cniVersion":"1.0.0","type":"ptp",` + hl + `}]}`),
			want: []string{
				"kubeconfig has no effect: the agent reads the cluster with its own credentials",
				"retryDeleteOnError has no effect", "daemonSocketDir has no effect",
				"logFile has no effect with the level panic", `logFile "multus.log" is not absolute`,
			},
		},
		"the log of Multus": {
			conf: list(`{"type":"multus","retryDeleteOnError":true,"logFile":"/var/log/multus.log","logLevel":"Verbose",
				"delegates":[{"name":"d","cniVersion":"1.0.0","type":"ptp",` + hl + `}]}`),
		},
		"an unknown level": {
			conf: list(`{"type":"multus","logFile":"/l","logLevel":"info",
				"delegates":[{"name":"d","cniVersion":"1.0.0","type":"ptp",` + hl + `}]}`),
			want: []string{`logLevel "info" is unknown: nothing is logged (use one of panic, error, verbose, debug)`},
		},
		"delegates": {
			conf: list(
				`{"type":"weft-cni","soket":"/x","delegates":[{"name":"d","cniVersion":"1.0.0","plugins":[{"type":"ptp","mtuu":1,` +
					hl + `}]}]}`,
			), want: []string{
				`"soket" (did you mean socket?)`,
				`plugins[0] weft-cni: delegates[0]: plugins[0] ptp: unknown key "mtuu" (did you mean mtu?)`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Examine([]byte(tc.conf), plugin.Builtin(), allocators())
			if len(r.Errors) > 0 {
				t.Errorf("errors: %v", r.Errors)
			}
			for _, w := range tc.want {
				if !slices.ContainsFunc(r.Warnings, func(have Warning) bool { return strings.Contains(have.String(), w) }) {
					t.Errorf("no warning %q in %v", w, r.Warnings)
				}
			}
			if len(r.Warnings) != len(tc.want) {
				t.Errorf("%d warnings, want %d: %v", len(r.Warnings), len(tc.want), r.Warnings)
			}
			if r.OK(false) != true || r.OK(true) != (len(tc.want) == 0) {
				t.Errorf("OK: %v, strict %v", r.OK(false), r.OK(true))
			}
		})
	}
}

// TestExamineReportsAllErrors does not stop at the first one.
func TestExamineReportsAllErrors(t *testing.T) {
	conf := `{"cniVersion":"1.0.0","name":"n","plugins":[
		{"type":"bridge","hairpinMode":true,"promiscMode":true,"ipam":{"type":"host-local","subnet":"10.0.0.0/31"}},
		{"type":"weft-cni","delegates":[{"name":"d","cniVersion":"1.0.0","type":"ptp"},{"name":"e"},
			{"name":"f","cniVersion":"1.0.0","type":"weft-cni","delegates":[{"type":"ptp"}]}]},
		{"type":"weft-cni","socket":5}]}`
	r := Examine([]byte(conf), plugin.Builtin(), allocators())
	want := []string{
		"plugins[0] bridge: plugin bridge: hairpinMode true and promiscMode true exclude each other",
		"plugins[0] bridge: ipam.subnet 10.0.0.0/31 is too small to allocate from",
		"plugins[1] weft-cni: delegates[0]: plugins[0] ptp: plugin ptp: ipam.type is missing",
		`plugins[1] weft-cni: delegates[1]: network "e": no plugins`,
		`plugins[1] weft-cni: delegates[2]: plugins[0] weft-cni: plugin "weft-cni" is among its own delegates`,
		"plugins[2] weft-cni: plugin: socket is number, want string",
	}
	for i, w := range want {
		if i >= len(r.Errors) || !strings.HasPrefix(r.Errors[i].String(), w) {
			t.Errorf("error %d of %v: want %q", i, r.Errors, w)
		}
	}
	if len(r.Errors) != len(want) || r.OK(false) {
		t.Errorf("errors: %v", r.Errors)
	}
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"mtu", "mut", 1}, {"mtu", "mtuu", 1}, {"abc", "", 3}, {"kitten", "sitting", 3}} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
