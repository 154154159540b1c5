// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// podWith returns the answers of a pod with eth0 routed, and blue's interface without addresses.
func podWith(links ...string) state.Answers {
	out := state.Answers{tapReady(): {Found: true}}
	for _, name := range links {
		maps.Copy(out,
			exists(state.Pod, state.Link{Name: name, Kind: state.Veth, MAC: state.SeedMAC(name), MTU: 1450, Up: state.On()}))
		out[routesQuery(name)] = state.Answer{Found: true}
	}
	gw := netip.MustParseAddr("169.254.1.1")
	maps.Copy(
		out,
		exists(state.Pod, state.Link{Name: "eth0", Kind: state.Veth, MAC: state.SeedMAC("eth0"), MTU: 1450, Up: state.On()},
			"10.1.0.5/32"),
	)
	out[routesQuery("eth0")] = state.Answer{Found: true, Routes: []state.Route{
		{Dst: full(gw), Link: "eth0"}, {Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Gw: gw, Link: "eth0"},
	}}
	out[state.Query{Space: state.Pod, Gateways: "eth0"}] = state.Answer{
		Found: true, Neighs: []state.Neigh{{Link: "eth0", IP: gw, MAC: routedMAC()}},
	}
	return out
}

func directGoldens() map[string]Input {
	const blue = `"args":{"cni":{"logicNetworkName":"blue"}}`
	return map[string]Input{
		"direct": {
			Conf: confOf(
				`{"type":"weft-direct","owner":107,"args":{"cni":{"logicNetworkName":"default"}},"dns":{"nameservers":["10.96.0.10"]}}`,
			), Answers: podWith(),
		},
		"direct-blue": {
			Conf:    confOf(`{"type":"weft-direct","multiQueue":true,"selinuxContext":"a:b:c:s0",` + blue + `}`),
			Answers: podWith("pod16477688c0e"), Chain: Chain{Prev: v4()},
		},
		"direct-options": {
			Conf: confOf(`{"type":"weft-direct","link":"eth0","join":"mirred","subnet":24}`), Answers: podWith(),
		},
		"calico-tap": {
			Conf: confOf(`{"type":"calico","mtu":1450,"num_queues":2,"host_tap":{"owner":107},"ipam":{"type":"x"}}`),
			IPAM: dual(),
		},
	}
}

// TestDirectRefused has invalid settings of a tap, and pods in which a tap cannot be created.
func TestDirectRefused(t *testing.T) {
	noTap := podWith()
	noTap[tapReady()] = state.Answer{Value: "/dev/net/tun: no such file or directory"}
	onNode := podWith()
	maps.Copy(
		onNode,
		exists(state.Pod, state.Link{
			Name: "eth0", Kind: state.Tap, MAC: state.SeedMAC("eth0"), MTU: 1450, Alias: "weft:net/c0ffee/eth0",
		}),
	)
	onNode[state.Query{Space: state.Pod, OtherEnd: "eth0"}] = state.Answer{
		Found: true, Link: state.Link{Name: "cali1234", Kind: state.Tap},
	}
	taken := podWith()
	maps.Copy(taken, exists(state.Pod, state.Link{Name: "tap0", Kind: state.Tap}))
	for name, c := range map[string]struct {
		conf    string
		answers state.Answers
		code    model.Code
		want    string
	}{
		"join": {
			`{"type":"weft-direct","join":"magic"}`, nil, model.CodeInvalidConf,
			`plugin weft-direct: join "magic" is not one of ` + fmt.Sprint(state.JoinMethods()),
		},
		"subnet": {
			`{"type":"weft-direct","subnet":31}`, nil, model.CodeInvalidConf,
			`plugin weft-direct: subnet 31 is not between 8 and 30`,
		},
		"type": {
			`{"type":"weft-direct","owner":"qemu"}`, nil, model.CodeDecode, `plugin weft-direct: owner is string, want uint32`,
		},
		"no tap": {
			`{"type":"weft-direct"}`, noTap, model.CodeInvalidEnv,
			`plugin weft-direct: no tap device can be created: /dev/net/tun: no such file or directory`,
		},
		"no link": {
			`{"type":"weft-direct","link":"eth7"}`, podWith(), model.CodeInvalidEnv,
			`plugin weft-direct: network "": the pod has no link eth7`,
		},
		"on node": {
			`{"type":"weft-direct"}`, onNode, model.CodeInvalidConf,
			`plugin weft-direct: the guest already has the tap cali1234 on the node`,
		},
		"taken": {
			`{"type":"weft-direct"}`, taken, model.CodeExists,
			`plugin weft-direct: network "": the pod already has a link tap0 (tun)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Conf: confOf(c.conf), Request: request(), Answers: c.answers}
			err := Validate(Direct{}, in.Conf)
			if err == nil {
				_, err = Direct{}.Plan(in)
			}
			var fault *model.Error
			if !errors.As(err, &fault) || fault.Msg != c.want || fault.Code != c.code {
				t.Errorf("\n got %v\nwant %s (code %d)", err, c.want, c.code)
			}
		})
	}
}

// TestHostTapLimits: a limit that cannot be enforced is rejected.
func TestHostTapLimits(t *testing.T) {
	in := calicoGoldens()["calico-annotations"]
	in.Conf = confOf(calicoOpen[:len(calicoOpen)-1] + `,"host_tap":{}}`)
	origin := in.Request.Origin
	in.Request = request()
	in.Request.Origin = origin
	_, err := Calico{}.Plan(in)
	var fault *model.Error
	if !errors.As(err, &fault) ||
		fault.Msg != "plugin calico: the egress bandwidth of a guest cannot be limited at a tap on the node" {
		t.Errorf("got %v", err)
	}
}
