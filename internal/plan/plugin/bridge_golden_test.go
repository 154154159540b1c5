// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"

	"github.com/weft-net/weft/internal/state"
)

// programs returns answers of a node with iptables.
func programs(more state.Answers) state.Answers {
	out := state.Answers{program(false): {Found: true, Value: "/sbin/i"}, program(true): {Found: true, Value: "/sbin/i6"}}
	maps.Copy(out, more)
	return out
}

// bridgeGoldens returns inputs for the rare options of bridge, and for iptables.
func bridgeGoldens() map[string]Input {
	gateway := state.Link{Name: "br0.100", Kind: state.Veth, MAC: state.MAC{2, 9, 9, 9, 9, 9}, Up: state.On()}
	boot := state.Answers{bootID(): {Found: true, Value: "b007"}}
	return map[string]Input{
		"bridge-vlan": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","vlan":100,"isGateway":true,"ipMasq":true,"ipam":{"type":"x"}}`),
			IPAM: dual(),
		},
		"bridge-vlan-foreign-gateway": {
			Conf: confOf(
				`{"type":"bridge","bridge":"br0","vlan":100,"isGateway":true,"forceAddress":true,"ipam":{"type":"x"}}`,
			),
			IPAM:    v4(),
			Answers: exists(state.Host, gateway, "10.9.0.1/24"),
		},
		"bridge-trunk": {
			Conf: confOf(
				`{"type":"bridge","bridge":"br0","vlanTrunk":[{"minID":1,"maxID":5},{"id":7},{"id":6,"minID":20,"maxID":21},{}]}`,
			), Answers: boot,
		},
		"bridge-vlan-trunk": {
			Conf: confOf(
				`{"type":"bridge","bridge":"br0","vlan":4,"preserveDefaultVlan":true,"vlanTrunk":[{"minID":2,"maxID":4094}]}`,
			),
			Answers: boot,
		},
		"bridge-spoof": {
			Conf:    confOf(`{"type":"bridge","bridge":"br0","macspoofchk":true,"portIsolation":true,"hairpinMode":true}`),
			Answers: boot,
		},
		"bridge-guard": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","guard":true,"ipam":{"type":"x"}}`), IPAM: dual(), Answers: boot,
		},
		"bridge-guard-layer2": {Conf: confOf(`{"type":"bridge","bridge":"br0","guard":true}`), Answers: boot},
		"bridge-dad": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","enabledad":true,"isGateway":true,"ipam":{"type":"x"}}`), IPAM: dual(),
		},
		"bridge-probe": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","dadTimeout":200,"ipam":{"type":"x"}}`), IPAM: dual(), Answers: boot,
		},
		"bridge-down": {Conf: confOf(`{"type":"bridge","bridge":"br0","disableContainerInterface":true}`), Answers: boot},
		"bridge-iptables": {
			Conf: confOf(
				`{"type":"bridge","bridge":"br0","isGateway":true,"ipMasq":true,"ipMasqBackend":"iptables","ipam":{"type":"x"}}`,
			),
			IPAM: dual(), Answers: programs(nil),
		},
		"ptp-iptables": {
			Conf: confOf(`{"type":"ptp","ipMasq":true,"ipMasqBackend":"iptables","ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: programs(nil),
		},
	}
}
