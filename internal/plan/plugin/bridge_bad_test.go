// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"maps"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestBridgeBadInput has invalid values of every option of bridge.
func TestBridgeBadInput(t *testing.T) {
	for options, want := range map[string]string{
		`"bridge":7`:                             "6 plugin bridge: bridge is number, want string",
		`"bridge":""`:                            `7 plugin bridge: bridge "" is not a valid interface name`,
		`"bridge":".."`:                          `7 plugin bridge: bridge ".." is not a valid interface name`,
		`"bridge":"a-bridge-of-16ch"`:            `7 plugin bridge: bridge "a-bridge-of-16ch" is too long for an interface name`,
		`"bridge":"a:b"`:                         `7 plugin bridge: bridge "a:b" contains a character that is not valid in an interface name`,
		`"isGateway":"yes"`:                      "6 plugin bridge: isGateway is string, want bool",
		`"isDefaultGateway":1`:                   "6 plugin bridge: isDefaultGateway is number, want bool",
		`"forceAddress":{}`:                      "6 plugin bridge: forceAddress is object, want bool",
		`"ipMasq":"true"`:                        "6 plugin bridge: ipMasq is string, want bool",
		`"ipMasqBackend":true`:                   "6 plugin bridge: ipMasqBackend is bool, want string",
		`"ipMasqBackend":"ipset"`:                `7 plugin bridge: ipMasqBackend "ipset" is not known`,
		`"mtu":"1400"`:                           "6 plugin bridge: mtu is string, want int",
		`"mtu":67`:                               "7 plugin bridge: mtu 67 is not between 68 and 65535",
		`"mtu":65536`:                            "7 plugin bridge: mtu 65536 is not between 68 and 65535",
		`"mtu":-1`:                               "7 plugin bridge: mtu -1 is not between 68 and 65535",
		`"mtu":1.5`:                              "6 plugin bridge: mtu is number 1.5, want int",
		`"hairpinMode":0`:                        "6 plugin bridge: hairpinMode is number, want bool",
		`"promiscMode":[]`:                       "6 plugin bridge: promiscMode is array, want bool",
		`"hairpinMode":true,"promiscMode":true`:  "7 plugin bridge: hairpinMode true and promiscMode true exclude each other",
		`"vlan":"5"`:                             "6 plugin bridge: vlan is string, want int",
		`"vlan":-1`:                              "7 plugin bridge: vlan -1 is not between 0 and 4094",
		`"vlan":4095`:                            "7 plugin bridge: vlan 4095 is not between 0 and 4094",
		`"guard":"yes"`:                          "6 plugin bridge: guard is string, want bool",
		`"guard":true,"vlanTrunk":[{"id":5}]`:    "7 plugin bridge: guard true and vlanTrunk exclude each other",
		`"vlanTrunk":5`:                          "6 plugin bridge: vlanTrunk is number, want list",
		`"vlanTrunk":{"id":5}`:                   "6 plugin bridge: vlanTrunk is object, want list",
		`"vlanTrunk":[5]`:                        "6 plugin bridge: vlanTrunk is number, want object",
		`"vlanTrunk":[{"id":"5"}]`:               "6 plugin bridge: vlanTrunk.id is string, want int",
		`"vlanTrunk":[{"id":0}]`:                 "7 plugin bridge: vlanTrunk[0].id 0 is not between 1 and 4094",
		`"vlanTrunk":[{"id":1},{"id":4095}]`:     "7 plugin bridge: vlanTrunk[1].id 4095 is not between 1 and 4094",
		`"vlanTrunk":[{"minID":0,"maxID":5}]`:    "7 plugin bridge: vlanTrunk[0].minID 0 is not between 1 and 4094",
		`"vlanTrunk":[{"minID":5,"maxID":4095}]`: "7 plugin bridge: vlanTrunk[0].maxID 4095 is not between 1 and 4094",
		`"vlanTrunk":[{"minID":5}]`:              "7 plugin bridge: vlanTrunk[0] has minID 5 and no maxID",
		`"vlanTrunk":[{"maxID":5,"id":1}]`:       "7 plugin bridge: vlanTrunk[0] has maxID 5 and no minID",
		`"vlanTrunk":[{"minID":6,"maxID":5}]`:    "7 plugin bridge: vlanTrunk[0].minID 6 is above maxID 5",
		`"preserveDefaultVlan":"no"`:             "6 plugin bridge: preserveDefaultVlan is string, want bool",
		`"macspoofchk":2`:                        "6 plugin bridge: macspoofchk is number, want bool",
		`"enabledad":"on"`:                       "6 plugin bridge: enabledad is string, want bool",
		`"portIsolation":"on"`:                   "6 plugin bridge: portIsolation is string, want bool",
		`"disableContainerInterface":"x"`:        "6 plugin bridge: disableContainerInterface is string, want bool",
		`"disableContainerInterface":true,"ipam":{"type":"x"}`: "7 plugin bridge: disableContainerInterface true and ipam exclude each other",
		`"bridge":"a-bridge-12ch","vlan":100,"isGateway":true,"ipam":{"type":"x"}`: `7 plugin bridge: bridge "a-bridge-12ch" with vlan 100: ` +
			`the gateway's link "a-bridge-12ch.100" is too long for an interface name`,
		`"ipam":"host-local"`:                         "6 plugin bridge: ipam is string, want object",
		`"ipam":{"type":7}`:                           "6 plugin bridge: ipam.type is number, want string",
		`"dns":7`:                                     "6 plugin bridge: dns is number, want object",
		`"dns":{"search":"x"}`:                        "6 plugin bridge: dns.search is string, want list",
		`"runtimeConfig":{"mac":7}`:                   "6 plugin bridge: runtimeConfig.mac is number, want string",
		`"runtimeConfig":{"mac":"02:00"}`:             `7 plugin bridge: runtimeConfig.mac: MAC address "02:00": address 02:00: invalid MAC address`,
		`"runtimeConfig":{"mac":"00:00:00:00:00:00"}`: "7 plugin bridge: runtimeConfig.mac: 00:00:00:00:00:00 is not a unicast address",
		`"args":{"cni":{"mac":"03:00:00:00:00:00"}}`:  "7 plugin bridge: args.cni.mac: 03:00:00:00:00:00 is not a unicast address",
		`"args":{"cni":[]}`:                           "6 plugin bridge: args.cni is array, want object",
	} {
		bad(t, "bridge", options, want)
	}
}

// TestPTPBadInput has invalid values of every option of ptp.
func TestPTPBadInput(t *testing.T) {
	for options, want := range map[string]string{
		`"mtu":true`:                                "6 plugin ptp: mtu is bool, want int",
		`"mtu":5,"ipam":{"type":"x"}`:               "7 plugin ptp: mtu 5 is not between 68 and 65535",
		`"ipMasq":1`:                                "6 plugin ptp: ipMasq is number, want bool",
		`"ipMasqBackend":["nftables"]`:              "6 plugin ptp: ipMasqBackend is array, want string",
		`"ipMasqBackend":"nft","ipam":{"type":"x"}`: `7 plugin ptp: ipMasqBackend "nft" is not known`,
		`"mtu":1400`:                                "7 plugin ptp: ipam.type is missing",
		`"ipam":null`:                               "7 plugin ptp: ipam.type is missing",
		`"ipam":{"type":""}`:                        "7 plugin ptp: ipam.type is missing",
	} {
		bad(t, "ptp", options, want)
	}
}

// bad checks that a configuration is rejected before anything is planned, with this code and message.
func bad(t *testing.T, typ, options, want string) {
	t.Helper()
	in := Input{Conf: confOf(`{"type":"` + typ + `",` + options + `}`), Request: request(), IPAM: dual()}
	p := Builtin()[typ]
	_, planErr := p.Plan(in)
	for verb, err := range map[string]error{"Validate": Validate(p, in.Conf), "Plan": planErr} {
		var f *model.Error
		if !errors.As(err, &f) || codeAndText(f) != want {
			t.Errorf("%s of %s:\n%v, want\n%s", verb, options, err, want)
		}
	}
}

func codeAndText(f *model.Error) string { return string(rune('0'+f.Code)) + " " + f.Msg }

// TestBridgeStateRefused has configurations that conflict with the node's state.
func TestBridgeStateRefused(t *testing.T) {
	vlan := `{"type":"bridge","bridge":"br0","vlan":5,"isGateway":true,"ipam":{"type":"x"}}`
	taken := exists(state.Host, state.Link{Name: "br0.5", Kind: state.Veth}, "10.9.0.1/24")
	one := state.Answers{program(true): {Found: true}}
	maps.Copy(one, exists(state.Host, state.Link{Name: "br0", Kind: state.Bridge}))
	for _, tc := range []struct {
		in   Input
		want string
	}{
		{
			Input{Conf: confOf(vlan), IPAM: v4(), Answers: taken},
			`7 plugin bridge: bridge "br0.5" has the address 10.9.0.1/24 and not the gateway's 10.1.0.1/24`,
		},
		{
			Input{
				Conf: confOf(`{"type":"bridge","ipMasq":true,"ipMasqBackend":"iptables","ipam":{"type":"x"}}`), IPAM: v4(),
				Answers: one,
			},
			`7 plugin bridge: ipMasqBackend "iptables" needs the program iptables-restore, which is not on this node`,
		},
	} {
		tc.in.Request = request()
		_, err := Bridge{}.Plan(tc.in)
		var f *model.Error
		if !errors.As(err, &f) || codeAndText(f) != tc.want {
			t.Errorf("%v, want\n%s", err, tc.want)
		}
	}
}
