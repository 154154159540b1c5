// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// master returns the answer that the link ens5 exists, with addresses.
func master(space state.SpaceName, prefixes ...string) state.Answers {
	l := state.Link{Name: "ens5", MAC: state.MAC{2, 0, 0, 0, 0, 5}, MTU: 1450, Up: state.On()}
	for _, a := range exists(space, l, prefixes...) {
		return state.Answers{{Space: space, Device: state.Device{Name: "ens5"}}: a}
	}
	return nil
}

// defaultMaster returns the answer that the default route is over ens5.
func defaultMaster(space state.SpaceName, family string) state.Answers {
	for _, a := range master(space) {
		return state.Answers{{Space: space, DefaultLink: family}: a}
	}
	return nil
}

// taps returns the answer that tap devices can be created.
func taps(more state.Answers) state.Answers {
	out := state.Answers{tapReady(): {Found: true}}
	maps.Copy(out, more)
	return out
}

func tables(used ...uint32) state.Answers {
	return state.Answers{tablesQuery(): {Found: true, Tables: append(used, 254, 255)}}
}

func with(all ...state.Answers) state.Answers {
	out := state.Answers{}
	for _, a := range all {
		maps.Copy(out, a)
	}
	return out
}

// there returns the answer that the container's interface exists and has a route.
func there(l state.Link) state.Answers {
	l.Name, l.Kind = "eth0", state.Veth
	route := func(dst, gw string, protocol uint8, table uint32) state.Route {
		r := state.Route{Dst: ip(dst, "").Address, Link: "eth0", Protocol: protocol, Table: table}
		if gw != "" {
			r.Gw = ip("10.0.0.1/8", gw).Gateway
		}
		return r
	}
	return state.Answers{
		{Space: state.Pod, Link: "eth0"}: {Found: true, Link: l},
		ownRoutes("eth0"): {Found: true, Link: l, Routes: []state.Route{
			route("0.0.0.0/0", "10.1.0.1", 3, 254), route("::/0", "fe80::1", 9, 254), route("172.16.0.0/16", "10.1.0.1", 3, 50),
		}},
	}
}

func kindsGoldens() map[string]Input {
	prev := &model.Result{
		Interfaces: []model.Interface{{Name: "ens5"}}, IPs: v4().IPs, Routes: v4().Routes, DNS: model.DNS{Domain: "d"},
	}
	planned := made(nil, aPair, dual())
	planned.Fragment.Pod.Routes = []state.Route{
		{Dst: ip("0.0.0.0/0", "").Address, Gw: ip("10.0.0.1/8", "10.1.0.1").Gateway, Link: "eth0"},
		{Dst: ip("172.16.0.0/16", "").Address, Gw: ip("10.0.0.1/8", "10.1.0.1").Gateway, Link: "eth0", Table: 50},
	}
	planned.Pending = planned.Fragment
	vrf := state.Link{Name: "blue", Kind: state.VRF, VRF: &state.VRFAttrs{Table: 7}, MAC: state.MAC{2, 7, 7, 7, 7, 7}}
	ours := vrf
	ours.Alias = SharedMark
	return map[string]Input{
		"macvlan": {
			Conf: confOf(`{"type":"macvlan","ipam":{"type":"x"}}`), IPAM: dual(), Answers: defaultMaster(state.Host, "4"),
		},
		"macvlan-l2": {
			Conf: confOf(
				`{"type":"macvlan","master":"ens5","mode":"private","mtu":1400,"mac":"02:00:00:00:00:99","bcqueuelen":2000}`,
			), Answers: master(state.Host),
		},
		"macvlan-pass": {
			Conf: confOf(`{"type":"macvlan","master":"ens5","mode":"passthru","dns":{"domain":"d"},"ipam":{"type":"x"}}`),
			IPAM: v4(), Answers: master(state.Host),
		},
		"macvlan-pod": {
			Conf: confOf(`{"type":"macvlan","linkInContainer":true,"mode":"vepa"}`), Answers: defaultMaster(state.Pod, "6"),
		},
		"macvlan-late": {
			Conf: confOf(`{"type":"macvlan","master":"ens5","ipam":{"type":"dhcp"}}`), IPAM: &model.Result{}, IPAMTiming: LinkOnly,
			Answers: master(state.Host),
		},
		"macvlan-probe": {
			Conf: confOf(`{"type":"macvlan","master":"ens5","dadTimeout":200,"ipam":{"type":"x"}}`), IPAM: dual(),
			Answers: master(state.Host),
		},
		"macvlan-shim": {
			Conf: confOf(`{"type":"macvlan","master":"ens5","hostShim":true,"ipam":{"type":"x"}}`), IPAM: dual(),
			Answers: master(state.Host, "10.1.0.250/24", "192.0.2.1/24", "fd00:1::250/64"),
		},
		"macvlan-shim-no-address": {
			Conf: confOf(`{"type":"macvlan","master":"ens5","hostShim":true,"ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: master(state.Host),
		},
		"ipvlan": {
			Conf: confOf(`{"type":"ipvlan","master":"ens5","ipam":{"type":"x"}}`), IPAM: dual(), Answers: master(state.Host),
		},
		"ipvlan-l3s": {
			Conf: confOf(`{"type":"ipvlan","mode":"l3s","mtu":1400,"ipam":{"type":"x"}}`), IPAM: dual(),
			Answers: defaultMaster(state.Host, "6"),
		},
		"ipvlan-chain": {
			Conf: confOf(`{"type":"ipvlan","linkInContainer":true}`), Chain: Chain{Prev: prev}, Answers: master(state.Pod),
		},
		"vlan": {
			Conf: confOf(`{"type":"vlan","master":"ens5","vlanId":7,"mtu":1450,"ipam":{"type":"x"}}`), IPAM: dual(),
			Answers: master(state.Host),
		},
		"vlan-pod": {
			Conf: confOf(`{"type":"vlan","master":"net1","vlanId":0,"linkInContainer":true,"ipam":{"type":"x"}}`), IPAM: v4(),
			Chain: inPod("net1"),
		},
		"vlan-probe": {
			Conf: confOf(`{"type":"vlan","master":"ens5","vlanId":7,"dadTimeout":1500,"ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: master(state.Host),
		},
		"dummy": {Conf: confOf(`{"type":"dummy","ipam":{"type":"x"}}`), IPAM: dual()},
		"tap":   {Conf: confOf(`{"type":"tap"}`), Answers: taps(nil)},
		"tap-all": {
			Conf: confOf(
				`{"type":"tap","multiQueue":true,"mtu":1400,"mac":"02:00:00:00:00:01","owner":0,"group":107,"selinuxContext":"a:b:c:s0",
				"bridge":"br0","ipam":{"type":"x"},"runtimeConfig":{"mac":"02:00:00:00:00:02"}}`), IPAM: dual(),
			Answers: taps(exists(state.Pod, state.Link{Name: "br0", Kind: state.Bridge})),
		},
		"vrf-planned": {Conf: confOf(`{"type":"vrf","vrfname":"blue"}`), Chain: planned, Answers: tables(1, 2)},
		"vrf-there": {
			Conf: confOf(`{"type":"vrf","vrfname":"blue","table":7}`), Chain: Chain{Prev: dual()},
			Answers: with(tables(), there(state.Link{}), exists(state.Pod, ours)),
		},
		"vrf-foreign": {
			Conf: confOf(`{"type":"vrf","vrfname":"blue"}`), Chain: Chain{Prev: dual()},
			Answers: with(tables(), there(state.Link{}), exists(state.Pod, vrf)),
		},
	}
}

// inPod returns a chain that creates another interface of the container.
func inPod(name string) Chain {
	f := state.Fragment{
		Pod: state.Space{
			Links: []state.Link{{Name: name, Kind: state.Veth, MAC: state.MAC{2, 8, 8, 8, 8, 8}, MTU: 1400, Up: state.On()}},
		},
	}
	return Chain{Prev: &model.Result{}, Fragment: f, Pending: f}
}

// askKinds prints the queries of these planners.
func askKinds(q state.Query) string {
	switch {
	case q.DefaultLink != "":
		return "default route " + q.DefaultLink
	case q.Tap:
		return "tap"
	}
	return ""
}

// TestKindsRefuse has invalid values of each option and their errors.
func TestKindsRefuse(t *testing.T) {
	down := state.Link{Name: "ens5", MTU: 1450, Up: state.Off()}
	ens5Down := state.Answers{{Space: state.Host, Device: state.Device{Name: "ens5"}}: {Found: true, Link: down}}
	blue := func(table uint32) state.Answers {
		return with(tables(), there(state.Link{}),
			exists(state.Pod, state.Link{Name: "blue", Kind: state.VRF, VRF: &state.VRFAttrs{Table: table}}))
	}
	prev := Chain{Prev: v4()}
	const lists, mac6 = "ip link lists the interfaces", "six bytes, for example 02:00:00:00:00:01"
	for _, tc := range []struct {
		conf    string
		chain   Chain
		answers state.Answers
		code    model.Code
		want    string
	}{
		{`{"type":"macvlan","master":5}`, Chain{}, nil, 6, `plugin macvlan: master is number, want string`},
		{
			`{"type":"macvlan","mode":"l2"}`,
			Chain{},
			nil, 7,
			`plugin macvlan: mode "l2" is not one of bridge, private, vepa and passthru`,
		},
		{`{"type":"macvlan","mode":1}`, Chain{}, nil, 6, `plugin macvlan: mode is number, want string`},
		{
			`{"type":"macvlan","mtu":20}`,
			Chain{},
			nil, 7,
			`plugin macvlan: mtu 20 is not between 68 and 65535 (0 leaves it to the kernel)`,
		},
		{
			`{"type":"macvlan","mtu":-1}`,
			Chain{},
			nil, 7,
			`plugin macvlan: mtu -1 is not between 68 and 65535 (0 leaves it to the kernel)`,
		},
		{
			`{"type":"macvlan","master":"ens5","mtu":1451}`,
			Chain{},
			master(state.Host), 7,
			`plugin macvlan: mtu 1451 is above the 1450 of master "ens5" (leave mtu out to use the master's)`,
		},
		{`{"type":"macvlan","bcqueuelen":-1}`, Chain{}, nil, 6, `plugin macvlan: bcqueuelen is number -1, want uint32`},
		{
			`{"type":"macvlan","bcqueuelen":4294967295}`,
			Chain{},
			nil, 7,
			`plugin macvlan: bcqueuelen 4294967295 is above 2147483647 (the kernel's default is 1000)`,
		},
		{
			`{"type":"macvlan","mac":"x"}`,
			Chain{},
			nil, 7,
			`plugin macvlan: mac: MAC address "x": address x: invalid MAC address (` + mac6 + `)`,
		},
		{
			`{"type":"macvlan","runtimeConfig":{"mac":"03:00:00:00:00:01"}}`,
			Chain{},
			nil, 7,
			`plugin macvlan: runtimeConfig.mac: 03:00:00:00:00:01 is not a unicast address (the lowest bit of the first byte must be 0)`,
		},
		{
			`{"type":"macvlan","linkInContainer":"yes"}`,
			Chain{},
			nil, 6,
			`plugin macvlan: linkInContainer is string, want bool`,
		},
		{
			`{"type":"macvlan","master":"a b"}`,
			Chain{},
			nil, 7,
			`plugin macvlan: master "a b" is not a valid interface name (` + lists + `)`,
		},
		{`{"type":"macvlan","master":"lo"}`, Chain{}, nil, 7, `plugin macvlan: master "lo" cannot be used (` + lists + `)`},
		{
			`{"type":"macvlan","master":"ens9"}`,
			Chain{},
			nil, 7,
			`plugin macvlan: master "ens9" does not exist on the node (` + lists + `)`,
		},
		{
			`{"type":"macvlan","master":"ens9","linkInContainer":true}`,
			Chain{},
			nil, 7,
			`plugin macvlan: master "ens9" does not exist in the container (` + lists + `)`,
		},
		{
			`{"type":"macvlan"}`,
			Chain{},
			nil, 7,
			`plugin macvlan: master is missing, and there is no default route on the node (set master)`,
		},
		{
			`{"type":"macvlan","master":"ens5"}`,
			Chain{},
			with(master(state.Host), exists(state.Pod, state.Link{Name: "eth0"})),
			100,
			`interface "eth0" exists already in /run/netns/c0ffee (DEL the attachment that uses it, or choose another CNI_IFNAME)`,
		},

		{
			`{"type":"ipvlan","mode":"bridge","ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin ipvlan: mode "bridge" is not one of l2, l3 and l3s`,
		},
		{
			`{"type":"ipvlan","master":"ens5"}`,
			Chain{},
			master(state.Host), 7,
			`plugin ipvlan: ipam.type is missing, and no earlier plugin returned addresses (add "ipam": {"type": …})`,
		},
		{
			`{"type":"ipvlan"}`, prev, nil, 7,
			`plugin ipvlan: master is missing, and prevResult names 0 interfaces, not one (set master)`,
		},
		{
			`{"type":"ipvlan","ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin ipvlan: master is missing, and there is no default route on the node (set master)`,
		},
		{`{"type":"ipvlan","ipam":"x"}`, Chain{}, nil, 6, `plugin ipvlan: ipam is string, want object`},

		{
			`{"type":"vlan","vlanId":5,"ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin vlan: master is missing (set the parent interface of the VLAN)`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":-1,"ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin vlan: vlanId -1 is not between 0 and 4094`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":4095,"ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin vlan: vlanId 4095 is not between 0 and 4094`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":-1,"ipam":{"type":"x"}}`,
			Chain{},
			nil, 7,
			`plugin vlan: vlanId -1 is not between 0 and 4094`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":"5","ipam":{"type":"x"}}`,
			Chain{},
			nil, 6,
			`plugin vlan: vlanId is string, want int`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":5}`,
			Chain{},
			nil, 7,
			`plugin vlan: ipam.type is missing (add "ipam": {"type": …})`,
		},
		{
			`{"type":"vlan","master":"ens5","vlanId":5,"ipam":{"type":"x"}}`,
			Chain{},
			ens5Down, 7,
			`plugin vlan: master "ens5" is down (ip link set ens5 up)`,
		},
		{
			`{"type":"vlan","master":"net1","vlanId":5,"mtu":1401,"linkInContainer":true,"ipam":{"type":"x"}}`, inPod("net1"),
			nil, 7, `plugin vlan: mtu 1401 is above the 1400 of master "net1" (leave mtu out to use the master's)`,
		},

		{`{"type":"dummy"}`, Chain{}, nil, 7, `plugin dummy: ipam.type is missing (add "ipam": {"type": …})`},
		{`{"type":"dummy","ipam":{"type":5}}`, Chain{}, nil, 6, `plugin dummy: ipam.type is number, want string`},

		{`{"type":"tap","multiQueue":1}`, Chain{}, nil, 6, `plugin tap: multiQueue is number, want bool`},
		{
			`{"type":"tap","mtu":65536}`,
			Chain{},
			nil, 7,
			`plugin tap: mtu 65536 is not between 68 and 65535 (0 leaves it to the kernel)`,
		},
		{`{"type":"tap","owner":-1}`, Chain{}, nil, 6, `plugin tap: owner is number -1, want uint32`},
		{`{"type":"tap","owner":"qemu"}`, Chain{}, nil, 6, `plugin tap: owner is string, want uint32`},
		{
			`{"type":"tap","group":4294967295}`,
			Chain{},
			nil, 7,
			`plugin tap: group 4294967295 is not a valid ID (remove it for root only)`,
		},
		{
			`{"type":"tap","selinuxContext":"a b"}`,
			Chain{},
			nil, 7,
			`plugin tap: selinuxContext "a b" is not a context (for example system_u:system_r:container_t:s0)`,
		},
		{
			`{"type":"tap","bridge":"a/b"}`,
			Chain{},
			nil, 7,
			`plugin tap: bridge "a/b" contains a character that is not valid in an interface name (at most 15 characters, no '/', ':' or white space)`,
		},
		{
			`{"type":"tap","bridge":"br0"}`,
			Chain{},
			taps(nil), 7,
			`plugin tap: bridge "br0" does not exist in the container (a plugin of an earlier network must create it)`,
		},
		{
			`{"type":"tap","bridge":"br0"}`,
			Chain{},
			taps(exists(state.Pod, state.Link{Name: "br0", Kind: state.Dummy})), 7,
			`plugin tap: bridge "br0" is not a bridge but a dummy`,
		},
		{
			`{"type":"tap","mac":"02:00"}`,
			Chain{},
			nil, 7,
			`plugin tap: mac: MAC address "02:00": address 02:00: invalid MAC address (` + mac6 + `)`,
		},
		{
			`{"type":"tap"}`,
			Chain{},
			state.Answers{tapReady(): {Value: "/dev/net/tun: no such device"}},
			7,
			`plugin tap: no tap device can be created: /dev/net/tun: no such device (modprobe tun, and give weft access to /dev/net/tun)`,
		},

		{`{"type":"vrf"}`, prev, nil, 7, `plugin vrf: vrfname is missing (name the VRF of the container)`},
		{`{"type":"vrf","vrfname":5}`, prev, nil, 6, `plugin vrf: vrfname is number, want string`},
		{
			`{"type":"vrf","vrfname":"a/b"}`, prev, nil, 7,
			`plugin vrf: vrfname "a/b" contains a character that is not valid in an interface name (at most 15 characters, no '/', ':' or white space)`,
		},
		{
			`{"type":"vrf","vrfname":"eth0"}`, prev, there(state.Link{}), 7,
			`plugin vrf: vrfname "eth0" is the interface's own name (choose another vrfname)`,
		},
		{`{"type":"vrf","vrfname":"blue","table":-1}`, prev, nil, 6, `plugin vrf: table is number -1, want uint32`},
		{
			`{"type":"vrf","vrfname":"blue","table":254}`, prev, nil, 7,
			`plugin vrf: table 254 is the kernel's own (leave it out to use a free one)`,
		},
		{
			`{"type":"vrf","vrfname":"blue"}`,
			Chain{},
			nil, 7,
			`plugin vrf: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			`{"type":"vrf","vrfname":"blue"}`, prev, tables(), 7,
			`plugin vrf: interface "eth0" does not exist in /run/netns/c0ffee (put the plugin after the one that creates the interface)`,
		},
		{
			`{"type":"vrf","vrfname":"blue"}`, prev, with(tables(), there(state.Link{Master: "br0"})), 7,
			`plugin vrf: interface "eth0" is a port of "br0" already (an interface has one master)`,
		},
		{
			`{"type":"vrf","vrfname":"blue","table":8}`, prev, blue(7), 7,
			`plugin vrf: table 8: VRF "blue" exists with table 7 (leave table out, or choose another vrfname)`,
		},
		{
			`{"type":"vrf","vrfname":"br0"}`, prev,
			with(there(state.Link{}), exists(state.Pod, state.Link{Name: "br0", Kind: state.Bridge})), 7,
			`plugin vrf: vrfname "br0" is not a VRF but a bridge (choose another vrfname)`,
		},
	} {
		in := Input{Conf: confOf(tc.conf), Request: request(), Chain: tc.chain, Answers: tc.answers, IPAM: v4()}
		_, err := Builtin()[in.Conf.Type].Plan(in)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %d %s", tc.conf, err, tc.code, tc.want)
		}
	}
}

// TestKindsWarnings has valid settings that are probably mistakes.
func TestKindsWarnings(t *testing.T) {
	for conf, want := range map[string]string{
		`{"type":"macvlan","mode":"passthru","mac":"02:00:00:00:00:01"}`: `[{mac mac also changes the master's MAC address with mode passthru choose another mode, or leave mac out}]`,
		`{"type":"macvlan"}`: `[]`, `{"type":"macvlan","mode":5}`: `[]`,
		`{"type":"tap","bridge":"br0","ipam":{"type":"x"}}`: `[{ipam an address of a bridge's port receives no packets assign the address to the bridge, or leave bridge out}]`,
		`{"type":"tap","bridge":"br0"}`:                     `[]`,
	} {
		c := confOf(conf)
		got := Builtin()[c.Type].(interface {
			Warnings(json.RawMessage) []model.Warning
		}).Warnings(c.Raw)
		if s := fmt.Sprint(got); s != want {
			t.Errorf("%s:\n got %s\nwant %s", conf, s, want)
		}
	}
}

// FuzzKinds plans arbitrary configurations on existing links.
func FuzzKinds(f *testing.F) {
	for _, in := range kindsGoldens() {
		f.Add(string(in.Conf.Raw), "02:00:00:00:00:01")
	}
	f.Add(`{"master":"ens5","vlanId":1e9,"mode":"","mtu":68,"vrfname":"a","table":4294967295,"bcqueuelen":2147483647}`, "")
	answers := with(master(state.Host), master(state.Pod), defaultMaster(state.Host, "4"), taps(nil), tables(1),
		there(state.Link{}))
	f.Fuzz(func(t *testing.T, conf, mac string) {
		for _, kind := range []string{"macvlan", "ipvlan", "vlan", "dummy", "tap", "vrf"} {
			in := Input{
				Conf: model.PluginConf{Type: kind, Raw: json.RawMessage(conf)}, Request: request(), IPAM: dual(),
				Answers: maps.Clone(answers),
			}
			if kind == "vrf" {
				in.Chain.Prev = dual()
			} else {
				delete(in.Answers, freeName(in.Request))
			}
			in.Request.Args = [][2]string{{"MAC", mac}}
			p := Builtin()[kind]
			_, observed := p.Observe(in)
			step, planned := p.Plan(in)
			for _, err := range []error{Validate(p, in.Conf), observed, planned} {
				var fault *model.Error
				if err != nil && !errors.As(err, &fault) {
					t.Fatalf("%s: error without a code: %v", kind, err)
				}
			}
			if planned != nil {
				continue
			}
			for _, l := range step.Fragment.Pod.Links {
				bad := l.Name == "" || len(l.Name) > 15 || l.MTU < 0 || l.MTU > 65535 || l.MAC[0]&1 != 0
				if bad || l.VLAN != nil && (l.VLAN.ID < 0 || l.VLAN.ID > 4094) || l.Parent != nil && l.Parent.Name == "" {
					t.Fatalf("%s %s: %v", kind, conf, l)
				}
			}
		}
	})
}
