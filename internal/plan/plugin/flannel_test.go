// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

func flannelNode() FlannelNode {
	return FlannelNode{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("fd00:42::/56")},
		Subnets:  []netip.Prefix{netip.MustParsePrefix("10.42.3.1/24"), netip.MustParsePrefix("fd00:42:0:3::1/64")},
		MTU:      1430, IPMasq: true,
	}
}

// The delegate has the keys that the reference plugin passes, in its order.
func TestFlannelDelegate(t *testing.T) {
	for conf, want := range map[string]string{
		`{"cniVersion":"0.3.1","name":"cbr0","type":"flannel","delegate":{"hairpinMode":true,"isDefaultGateway":true}}`: `{"cniVersion":"0.3.1","hairpinMode":true,` +
			`"ipMasq":false,"ipam":{"ranges":[[{"subnet":"10.42.3.0/24"}],[{"subnet":"fd00:42:0:3::/64"}]],"routes":[{"dst":"10.42.0.0/16"},{"dst":"fd00:42::/56"}],"type":"host-local"},` +
			`"isDefaultGateway":true,"isGateway":true,"mtu":1430,"name":"cbr0","type":"bridge"}`,
		`{"name":"n","delegate":{"type":"ptp","mtu":1300,"ipMasq":true},"ipam":{"dataDir":"/d","routes":[{"dst":"10.9.0.0/16","gw":"10.42.3.1"}]},"runtimeConfig":{"mac":"02:00:00:00:00:07"}}`: `{"ipMasq":true,` +
			`"ipam":{"dataDir":"/d","ranges":[[{"subnet":"10.42.3.0/24"}],[{"subnet":"fd00:42:0:3::/64"}]],"routes":[{"dst":"10.9.0.0/16","gw":"10.42.3.1"},{"dst":"10.42.0.0/16"},{"dst":"fd00:42::/56"}],"type":"host-local"},` +
			`"mtu":1300,"name":"n","runtimeConfig":{"mac":"02:00:00:00:00:07"},"type":"ptp"}`,
	} {
		d, err := Flannel{}.Delegate(model.PluginConf{Type: "flannel", Raw: json.RawMessage(conf)}, flannelNode())
		if err != nil || string(d.Raw) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", conf, err, d.Raw, want)
		}
	}
}

func TestBadFlannelConf(t *testing.T) {
	for conf, want := range map[string]string{
		`{"delegate":{"name":"x"}}`:         `plugin flannel: delegate.name "x" must not be set (the delegate has the network's name)`,
		`{"delegate":{"ipam":{}}}`:          `plugin flannel: delegate.ipam must not be set (move ipam out of delegate)`,
		`{"delegate":{"type":5}}`:           `plugin flannel: delegate.type is number, want string`,
		`{"delegate":{"type":""}}`:          `plugin flannel: delegate.type "" names no plugin (leave it out, or name a plugin)`,
		`{"delegate":{"type":"flannel"}}`:   `plugin flannel: delegate.type "flannel" is the plugin itself (leave it out to have "bridge")`,
		`{"delegate":[]}`:                   `plugin flannel: delegate is array, want object`,
		`{"delegate":{"bridge":"a b"}}`:     `plugin bridge: bridge "a b" contains a character that is not valid in an interface name (at most 15 characters, no '/', ':' or white space)`,
		`{"ipam":"host-local"}`:             `plugin flannel: ipam is string, want object`,
		`{"ipam":{"routes":{}}}`:            `plugin flannel: ipam.routes is object, want list`,
		`{"ipam":{"type":1}}`:               `plugin flannel: ipam.type is number, want string`,
		`{"subnetFile":1}`:                  `plugin flannel: subnetFile is number, want string`,
		`{"dataDir":{}}`:                    `plugin flannel: dataDir is object, want string`,
		`{"runtimeConfig":7}`:               `plugin flannel: runtimeConfig is number, want object`,
		`{"delegate":{"type":"elsewhere"}}`: "",
	} {
		err := Validate(Flannel{}, model.PluginConf{Type: "flannel", Raw: json.RawMessage(conf)})
		var f *model.Error
		if want == "" && err == nil {
			continue
		}
		if !errors.As(err, &f) || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", conf, err, want)
		}
	}
}
