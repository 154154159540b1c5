// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// made returns the state after an earlier plugin: the result, and the plan unless the plugin ran in a process of its
// own.
func made(t *testing.T, conf string, ipam *model.Result) Chain {
	if t != nil {
		t.Helper()
	}
	in := Input{Conf: confOf(conf), Request: request(), IPAM: ipam}
	step, err := Builtin()[in.Conf.Type].Plan(in)
	if err != nil {
		panic(err)
	}
	return Chain{Prev: &step.Result, Fragment: step.Fragment}
}

const (
	aBridge = `{"type":"bridge","bridge":"br0","isGateway":true,"ipam":{"type":"x"}}`
	aPair   = `{"type":"ptp","ipam":{"type":"x"}}`
)

// prevOnly returns what a plugin in a process of its own knows of the chain.
func (c Chain) prevOnly() Chain { return Chain{Prev: c.Prev} }

func macvlan() (Chain, state.Answers) {
	zero := 0
	prev := &model.Result{
		Interfaces: []model.Interface{{Name: "eth0", Sandbox: request().Netns}},
		IPs:        []model.IP{{Interface: &zero, Address: ip("10.1.0.5/24", "").Address}},
	}
	return Chain{Prev: prev}, state.Answers{
		{Space: state.Pod, Link: "eth0"}: {Found: true, Link: state.Link{Name: "eth0", Kind: "macvlan", MTU: 1400}},
	}
}

func shapeGoldens() map[string]Input {
	const both = `{"type":"bandwidth","ingressRate":8000000,"ingressBurst":160000,"egressRate":80000000000,"egressBurst":34359738352}`
	link, answers := macvlan()
	pair := made(nil, aPair, dual())
	bridged := made(nil, aBridge, dual())
	apart := bridged.prevOnly()
	found := exists(state.Host, bridged.Fragment.Host.Links[0])
	maps.Copy(found, exists(state.Pod, bridged.Fragment.Pod.Links[0]))
	found[state.Query{Space: state.Pod, OtherEnd: "eth0"}] = state.Answer{
		Found: true, Link: bridged.Fragment.Host.Links[1],
	}
	drops := state.Answers{
		dropped("4"): {Found: true, Value: "inet mine forward"}, dropped("6"): {Found: true, Value: "ip6 filter FORWARD"},
	}
	return map[string]Input{
		"bandwidth":           {Conf: confOf(both), Chain: pair},
		"bandwidth-unlimited": {Conf: confOf(`{"type":"bandwidth","ingressRate":0}`), Chain: pair},
		"bandwidth-runtime": {
			Conf:  confOf(`{"type":"bandwidth","RuntimeConfig":{"Bandwidth":{"egressrate":8000,"egressBurst":80000}}}`),
			Chain: pair,
		},
		"bandwidth-both-given": {
			Conf: confOf(
				`{"type":"bandwidth","ingressRate":8000,"ingressBurst":80000,"runtimeConfig":{"bandwidth":{"egressRate":8000,"egressBurst":80000}}}`,
			), Chain: pair,
		},
		"bandwidth-macvlan": {Conf: confOf(both), Chain: link, Answers: answers},
		"bandwidth-alone":   {Conf: confOf(both), Chain: apart, Answers: found},

		"firewall":             {Conf: confOf(`{"type":"firewall"}`), Chain: bridged},
		"firewall-same-bridge": {Conf: confOf(`{"type":"firewall","ingressPolicy":"same-bridge"}`), Chain: bridged},
		"firewall-isolated": {
			Conf: confOf(`{"type":"firewall","backend":"nftables","ingressPolicy":"isolated"}`), Chain: bridged,
		},
		"firewall-alone": {Conf: confOf(`{"type":"firewall","ingressPolicy":"isolated"}`), Chain: apart, Answers: found},
		"firewall-pair":  {Conf: confOf(`{"type":"firewall","ingressPolicy":"same-bridge"}`), Chain: pair},
		"firewall-iptables": {
			Conf: confOf(`{"type":"firewall","backend":"iptables","iptablesAdminChainName":"MINE"}`), Chain: bridged,
		},
		"firewall-iptables-isolated": {
			Conf: confOf(`{"type":"firewall","backend":"iptables","ingressPolicy":"isolated"}`), Chain: bridged,
		},
		"firewall-dropping": {Conf: confOf(`{"type":"firewall"}`), Chain: bridged, Answers: drops},
		"firewall-firewalld": {
			Conf: confOf(`{"type":"firewall","firewalldZone":"internal"}`), Chain: bridged,
			Answers: state.Answers{firewalld(): {Found: true}},
		},
		"firewall-firewalld-isolated": {
			Conf: confOf(`{"type":"firewall","backend":"firewalld","ingressPolicy":"isolated"}`), Chain: bridged,
		},
		"firewall-no-address": {Conf: confOf(`{"type":"firewall"}`), Chain: Chain{Prev: &model.Result{}}},
	}
}

func askShape(q state.Query) string {
	switch {
	case q.OtherEnd != "":
		return "other end of " + q.OtherEnd
	case q.Firewalld:
		return "firewalld"
	case q.ForwardDrop != "":
		return "dropped " + q.ForwardDrop
	}
	return ""
}

func showShape(b *strings.Builder, s state.Space) {
	for _, q := range s.Qdiscs {
		fmt.Fprintf(b, "  %s\n", q)
	}
	for _, z := range s.Sources {
		fmt.Fprintf(b, "  %s\n", z)
	}
}

// TestFirewallUnread: legacy iptables tables that cannot be read are reported if they matter: no backend is configured,
// and the container has an address of the family.
func TestFirewallUnread(t *testing.T) {
	const conf, named = `{"type":"firewall"}`, `{"type":"firewall","backend":"nftables"}`
	unread := func(more state.Answers) state.Answers {
		out := state.Answers{
			dropped(state.LegacyForwardDrop + "4"): {Value: "iptables table filter"},
			dropped(state.LegacyForwardDrop + "6"): {Value: "ip6tables table filter"},
		}
		maps.Copy(out, more)
		return out
	}
	for name, tc := range map[string]struct {
		conf    string
		chain   Chain
		answers state.Answers
		want    int
	}{
		"both families": {conf, made(nil, aBridge, dual()), unread(nil), 2},
		"one family":    {conf, made(nil, aBridge, v4()), unread(nil), 1},
		"named":         {named, made(nil, aBridge, dual()), unread(nil), 0},
		"read":          {conf, made(nil, aBridge, dual()), nil, 0},
		"dropping": {
			conf, made(nil, aBridge, dual()), unread(state.Answers{dropped("4"): {Found: true, Value: "ip filter FORWARD"}}), 2,
		},
		"firewalld": {conf, made(nil, aBridge, dual()), unread(state.Answers{firewalld(): {Found: true}}), 0},
	} {
		step, err := Firewall{}.Plan(Input{Conf: confOf(tc.conf), Chain: tc.chain, Answers: tc.answers})
		if err != nil || len(step.Warnings) != tc.want {
			t.Errorf("%s: %v %v, want %d", name, step.Warnings, err, tc.want)
		}
		for _, d := range step.Warnings {
			if !strings.Contains(d.Msg, "table filter") || !strings.Contains(d.Hint, "install iptables-legacy") {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
}

// TestBadShapes has every invalid configuration of these plugins.
func TestBadShapes(t *testing.T) {
	pair := made(t, aPair, v4())
	link, answers := macvlan()
	for _, tc := range []struct {
		conf    string
		chain   Chain
		answers state.Answers
		code    model.Code
		want    string
	}{
		{
			`{"type":"bandwidth","ingressRate":1000}`, pair, nil, 7,
			`plugin bandwidth: ingressRate 1000 without ingressBurst (set the burst, in bits)`,
		},
		{
			`{"type":"bandwidth","ingressBurst":1000}`, pair, nil, 7,
			`plugin bandwidth: ingressBurst 1000 without ingressRate (set the rate, in bits per second)`,
		},
		{
			`{"type":"bandwidth","egressRate":1000,"egressBurst":0}`, pair, nil, 7,
			`plugin bandwidth: egressRate 1000 without egressBurst (set the burst, in bits)`,
		},
		{
			`{"type":"bandwidth","runtimeConfig":{"bandwidth":{"egressBurst":1000}}}`, pair, nil, 7,
			`plugin bandwidth: runtimeConfig.bandwidth.egressBurst 1000 without runtimeConfig.bandwidth.egressRate (set the rate, in bits per second)`,
		},
		{
			`{"type":"bandwidth","ingressRate":1000,"ingressBurst":34359738368}`, pair, nil, 7,
			`plugin bandwidth: ingressBurst 34359738368 is 4 GB or more (it is in bits; the kernel counts less than 4 GB)`,
		},
		{
			`{"type":"bandwidth","egressRate":7,"egressBurst":8000}`, pair, nil, 7,
			`plugin bandwidth: egressRate 7 is less than a byte per second (it is in bits per second)`,
		},
		{
			`{"type":"bandwidth","egressRate":8,"egressBurst":7}`, pair, nil, 7,
			`plugin bandwidth: egressBurst 7 is less than a byte (it is in bits)`,
		},
		{`{"type":"bandwidth","egressRate":-8}`, pair, nil, 6, `plugin bandwidth: egressRate is number -8, want uint64`},
		{`{"type":"bandwidth","egressRate":1.5}`, pair, nil, 6, `plugin bandwidth: egressRate is number 1.5, want uint64`},
		{`{"type":"bandwidth","ingressRate":"1M"}`, pair, nil, 6, `plugin bandwidth: ingressRate is string, want uint64`},
		{
			`{"type":"bandwidth","ingressRate":18446744073709551616}`, pair, nil, 6,
			`plugin bandwidth: ingressRate is number 18446744073709551616, want uint64`,
		},
		{
			`{"type":"bandwidth","runtimeConfig":{"bandwidth":[]}}`, pair, nil, 6,
			`plugin bandwidth: runtimeConfig.bandwidth is array, want object`,
		},
		{
			`{"type":"bandwidth"}`,
			Chain{},
			nil, 7,
			`plugin bandwidth: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			`{"type":"bandwidth","egressRate":8000,"egressBurst":8000}`, pair.prevOnly(), nil, 7,
			`plugin bandwidth: interface "eth0" does not exist in /run/netns/c0ffee (put the plugin after the one that creates the interface)`,
		},

		{
			`{"type":"firewall","backend":"ufw"}`, pair, nil, 7,
			`plugin firewall: backend "ufw" is unknown (choose one of nftables, iptables, firewalld)`,
		},
		{`{"type":"firewall","backend":1}`, pair, nil, 6, `plugin firewall: backend is number, want string`},
		{
			`{"type":"firewall","ingressPolicy":"closed"}`, pair, nil, 7,
			`plugin firewall: ingressPolicy "closed" is unknown (choose one of open, same-bridge, isolated)`,
		},
		{`{"type":"firewall","ingressPolicy":true}`, pair, nil, 6, `plugin firewall: ingressPolicy is bool, want string`},
		{
			`{"type":"firewall","iptablesAdminChainName":"a b"}`, pair, nil, 7,
			`plugin firewall: iptablesAdminChainName "a b" is not a valid chain name (at most 28 characters, no white space, no - or ! at the beginning)`,
		},
		{
			`{"type":"firewall","iptablesAdminChainName":"-A"}`, pair, nil, 7,
			`plugin firewall: iptablesAdminChainName "-A" is not a valid chain name (at most 28 characters, no white space, no - or ! at the beginning)`,
		},
		{
			`{"type":"firewall","iptablesAdminChainName":"CNI-ADMIN-OF-A-VERY-LONG-NAME"}`, pair, nil, 7,
			`plugin firewall: iptablesAdminChainName "CNI-ADMIN-OF-A-VERY-LONG-NAME" is not a valid chain name (at most 28 characters, no white space, no - or ! at the beginning)`,
		},
		{
			`{"type":"firewall","iptablesAdminChainName":"FORWARD"}`, pair, nil, 7,
			`plugin firewall: iptablesAdminChainName "FORWARD" is the name of another chain (choose another name for the chain of your own rules)`,
		},
		{
			`{"type":"firewall","iptablesAdminChainName":[]}`, pair, nil, 6,
			`plugin firewall: iptablesAdminChainName is array, want string`,
		},
		{
			`{"type":"firewall","firewalldZone":"my zone"}`, pair, nil, 7,
			`plugin firewall: firewalldZone "my zone" is not a valid zone name (at most 17 characters, no white space)`,
		},
		{
			`{"type":"firewall","firewalldZone":"a-zone-of-18-bytes"}`, pair, nil, 7,
			`plugin firewall: firewalldZone "a-zone-of-18-bytes" is not a valid zone name (at most 17 characters, no white space)`,
		},
		{`{"type":"firewall","firewalldZone":5}`, pair, nil, 6, `plugin firewall: firewalldZone is number, want string`},
		{
			`{"type":"firewall"}`,
			Chain{},
			nil, 7,
			`plugin firewall: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			`{"type":"firewall","ingressPolicy":"isolated"}`, link, answers, 7,
			`plugin firewall: ingressPolicy "isolated": the first interface of prevResult is not an interface of the node (chain it to bridge or ptp, or leave ingressPolicy out)`,
		},
		{
			`{"type":"firewall","ingressPolicy":"same-bridge"}`, pair.prevOnly(), nil, 7,
			`plugin firewall: ingressPolicy "same-bridge": the first interface of prevResult is not an interface of the node (chain it to bridge or ptp, or leave ingressPolicy out)`,
		},
	} {
		in := Input{Conf: confOf(tc.conf), Request: request(), Chain: tc.chain, Answers: tc.answers}
		_, err := Builtin()[in.Conf.Type].Plan(in)
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %d %s", tc.conf, err, tc.code, tc.want)
		}
	}
}

// TestShapeWarnings has valid settings that are probably mistakes.
func TestShapeWarnings(t *testing.T) {
	for conf, want := range map[string]string{
		`{"type":"bandwidth","ingressRate":8000,"ingressBurst":8000,"egressRate":8000,"egressBurst":80000}`: `[{ingressBurst ingressBurst 8000 is less than a packet of 1500 bytes: longer ones never pass make it 12112 bits or more}]`,
		`{"type":"bandwidth","ingressRate":8000,"ingressBurst":12112}`:                                      `[]`,
		`{"type":"bandwidth","ingressRate":"x"}`:                                                            `[]`,
		`{"type":"firewall","backend":"nftables","iptablesAdminChainName":"A","firewalldZone":"b"}`: `[{iptablesAdminChainName iptablesAdminChainName has no effect with backend nftables remove it} ` +
			`{firewalldZone firewalldZone has no effect with backend nftables remove it}]`,
		`{"type":"firewall","iptablesAdminChainName":"A","firewalldZone":"b"}`: `[]`,
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

// FuzzBandwidth: every accepted limit fits into the kernel's counters, and every planned one limits.
func FuzzBandwidth(f *testing.F) {
	f.Add(uint64(8000), uint64(8000), uint64(0), uint64(0), true)
	f.Add(uint64(math.MaxUint64), uint64(34359738367), uint64(8), uint64(8), false)
	pair := made(nil, aPair, v4())
	f.Fuzz(func(t *testing.T, inRate, inBurst, outRate, outBurst uint64, top bool) {
		conf := fmt.Sprintf(`{"ingressRate":%d,"ingressBurst":%d,"egressRate":%d,"egressBurst":%d}`, inRate, inBurst,
			outRate, outBurst)
		if !top {
			conf = `{"runtimeConfig":{"bandwidth":` + conf + `}}`
		}
		step, err := Bandwidth{}.Plan(Input{
			Conf: model.PluginConf{Type: "bandwidth", Raw: json.RawMessage(conf)}, Request: request(), Chain: pair,
		})
		if (err == nil) != (validPair(inRate, inBurst) && validPair(outRate, outBurst)) {
			t.Fatalf("%s: %v", conf, err)
		}
		if err != nil {
			return
		}
		n := 0
		for _, q := range append(step.Fragment.Host.Qdiscs, step.Fragment.Pod.Qdiscs...) {
			n++
			if q.Rate == 0 || q.Burst == 0 || q.Limit < q.Burst {
				t.Errorf("%s: %s", conf, q)
			}
		}
		want := 0
		for _, rate := range []uint64{inRate, outRate} {
			if rate != 0 {
				want++
			}
		}
		if n != want {
			t.Errorf("%s: %d token buckets, want %d", conf, n, want)
		}
	})
}

func validPair(rate, burst uint64) bool {
	return rate == 0 && burst == 0 || rate >= 8 && burst >= 8 && burst/8 < math.MaxUint32
}
