// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

const macvtapID = "tap1879048193-bridge-ens5"

func macvtapConfOf(more string) model.PluginConf {
	return model.PluginConf{
		Type: OwnMacvtapType, Raw: json.RawMessage(`{"type":"weft-macvtap","deviceID":"` + macvtapID + `"` + more + `}`),
	}
}

func macvtapGoldens() map[string]Input {
	return map[string]Input{
		"macvtap": {Conf: macvtapConfOf(""), Answers: master(state.Host)},
		"macvtap-all": {
			Conf: macvtapConfOf(
				`,"mtu":1400,"promiscMode":true,"owner":1000,"group":0,"runtimeConfig":{"mac":"02:00:00:00:00:02"},"ipam":{"type":"x"}`,
			), IPAM: dual(), Answers: master(state.Host),
		},
	}
}

// TestMacvtapRefuses has invalid configurations, and a lower interface that does not fit.
func TestMacvtapRefuses(t *testing.T) {
	with := func(text string) model.PluginConf {
		return model.PluginConf{Type: OwnMacvtapType, Raw: json.RawMessage(text)}
	}
	for _, tc := range []struct {
		conf    model.PluginConf
		answers state.Answers
		code    model.Code
		want    string
	}{
		{with(`{}`), nil, 7, `plugin macvtap: deviceID "" is not a device of weft's (the kubelet allocates one to a pod that requests the network's resource; macvtap-cni's own are attached by its program)`},
		{with(`{"deviceID":"dataplaneMvp0"}`), nil, 7, `plugin macvtap: deviceID "dataplaneMvp0" is not a device of weft's (the kubelet allocates one to a pod that requests the network's resource; macvtap-cni's own are attached by its program)`},
		{
			with(`{"deviceID":"tap5-bridge-ens5"}`), nil, 7,
			`plugin macvtap: deviceID "tap5-bridge-ens5" is not a device of weft's (the kubelet allocates one to a pod that requests the network's resource; macvtap-cni's own are attached by its program)`,
		},
		{
			with(`{"deviceID":"tap1879048193-passthru-ens5"}`), nil, 7,
			`plugin macvtap: deviceID "tap1879048193-passthru-ens5" is not a device of weft's (the kubelet allocates one to a pod that requests the network's resource; macvtap-cni's own are attached by its program)`,
		},
		{macvtapConfOf(`,"mtu":20`), nil, 7, `plugin macvtap: mtu 20 is not between 68 and 65535 (0 leaves it to the kernel)`},
		{macvtapConfOf(`,"mac":"x"`), nil, 7, `plugin macvtap: mac: MAC address "x": address x: invalid MAC address (six bytes, for example 02:00:00:00:00:01)`},
		{macvtapConfOf(`,"owner":4294967295`), nil, 7, `plugin macvtap: owner 4294967295 is not a valid ID (remove it for KubeVirt's user, 107)`},
		{macvtapConfOf(`,"promiscMode":1`), nil, 6, `plugin macvtap: promiscMode is number, want bool`},
		{
			macvtapConfOf(""), nil, model.CodeTryAgain,
			`plugin macvtap: lowerDevice "ens5" of device ` + macvtapID + ` does not exist on the node (ip link lists the interfaces)`,
		},
		{
			macvtapConfOf(`,"mtu":9000`), master(state.Host), 7,
			`plugin macvtap: mtu 9000 is above the 1450 of lowerDevice "ens5" (leave mtu out to use that of lowerDevice)`,
		},
	} {
		_, err := Macvtap{}.Plan(Input{Conf: tc.conf, Request: request(), Answers: tc.answers, IPAM: v4()})
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %d %s", tc.conf.Raw, err, tc.code, tc.want)
		}
	}
}

// TestMacvtapDevice: an ID has everything, and indexes differ between nodes, resources and devices.
func TestMacvtapDevice(t *testing.T) {
	seen := map[int]bool{}
	for _, node := range []string{"a", "b"} {
		for _, resource := range []string{"x", "y"} {
			for i := range 100 {
				d := MacvtapDevice{Index: MacvtapIndex(node, resource, i), Mode: "vepa", Lower: "bond-0.7"}
				if got, ok := ParseMacvtapDevice(d.ID()); !ok || got != d {
					t.Fatalf("%s: %+v %v", d.ID(), got, ok)
				}
				seen[d.Index] = true
			}
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d of 400 indexes", len(seen))
	}
	if got := MacvtapIndex("a", "x", 0); got != MacvtapIndex("a", "x", 0) || (MacvtapDevice{Index: 7}).Path() != "/dev/tap7" {
		t.Error(got)
	}
}
