// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// portmap returns a configuration with these options and mappings.
func portmap(options, mappings string) model.PluginConf {
	return confOf(`{"type":"portmap"` + options + `,"runtimeConfig":{"portMappings":[` + mappings + `]}}`)
}

const (
	aPort    = `{"hostPort":8080,"containerPort":80,"protocol":"tcp"}`
	allPorts = aPort +
		`,{"hostPort":5353,"containerPort":53,"protocol":"UDP","hostIP":""},{"hostPort":9,"containerPort":99,"protocol":"sctp","hostIP":"::"},
		{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":"192.0.2.1"},{"hostPort":8081,"containerPort":80,"protocol":"tcp","hostIP":"2001:DB8::1"},
		{"hostPort":8082,"containerPort":80,"protocol":"tcp","hostIP":"127.0.0.1"},{"HostPort":8083,"ContainerPort":80,"Protocol":"tcp","HostIP":"0.0.0.0"}`
)

func portmapGoldens() map[string]Input {
	pair, bridged := made(nil, aPair, dual()), made(nil, aBridge, dual())
	link, _ := macvlan()
	over := func(name string, kind state.Kind) state.Answers {
		out := state.Answers{
			routeTo(netip.MustParseAddr("10.1.0.5")):  {Found: true, Link: state.Link{Name: name, Kind: kind}},
			routeTo(netip.MustParseAddr("fd00:1::5")): {Found: true, Link: state.Link{Name: name, Kind: kind}},
		}
		if kind == state.Bridge {
			out[state.Query{Space: state.Pod, OtherEnd: "eth0"}] = state.Answer{
				Found: true, Link: bridged.Fragment.Host.Links[1],
			}
		}
		maps.Copy(out, programs(nil))
		return out
	}
	const iptables = `,"backend":"iptables"`
	return map[string]Input{
		"portmap":            {Conf: portmap("", allPorts), Chain: bridged},
		"portmap-pair":       {Conf: portmap("", allPorts), Chain: pair},
		"portmap-alone":      {Conf: portmap("", allPorts), Chain: bridged.prevOnly(), Answers: over("br0", state.Bridge)},
		"portmap-macvlan":    {Conf: portmap("", aPort), Chain: link, Answers: over("eth9", "")},
		"portmap-none":       {Conf: confOf(`{"type":"portmap","snat":true}`), Chain: pair},
		"portmap-no-address": {Conf: portmap("", aPort), Chain: Chain{Prev: &model.Result{}}},
		"portmap-no-snat":    {Conf: portmap(`,"snat":false`, aPort), Chain: bridged},
		"portmap-masq-all":   {Conf: portmap(`,"masqAll":true`, aPort), Chain: bridged},
		"portmap-bit":        {Conf: portmap(`,"markMasqBit":0`, aPort), Chain: pair},
		"portmap-conditions": {
			Conf:  portmap(`,"conditionsV4":["ip saddr != 10.0.0.0/8","iifname \"eth0\""],"conditionsV6":[""]`, aPort),
			Chain: pair,
		},
		"portmap-includes": {
			Conf: portmap("", strings.Replace(aPort, "}", `,"hostIP":"192.0.2.1"},`, 1)+aPort+","+aPort), Chain: pair,
		},

		"portmap-iptables": {
			Conf: portmap(iptables, allPorts), Chain: bridged, Answers: over("br0", state.Bridge),
		},
		"portmap-iptables-masq-all": {
			Conf: portmap(iptables+`,"masqAll":true,"markMasqBit":31`, aPort), Chain: pair, Answers: programs(nil),
		},
		"portmap-iptables-external": {
			Conf: portmap(`,"externalSetMarkChain":"KUBE-MARK-MASQ"`, aPort), Chain: pair, Answers: programs(nil),
		},
		"portmap-iptables-conditions": {
			Conf: portmap(`,"conditionsV4":["!","-s","10.0.0.0/8"],"conditionsV6":["-m","comment","--comment","a \"b\""]`,
				aPort), Chain: pair, Answers: programs(nil),
		},
	}
}

func askPort(q state.Query) string {
	if q.RouteTo.IsValid() {
		return "route to " + q.RouteTo.String()
	}
	return ""
}

func showValue(e state.Element) string {
	if len(e.Val) == 0 {
		return ""
	}
	return " : " + strings.Join(e.Val, " . ")
}

// TestBadPorts has every invalid configuration of portmap.
func TestBadPorts(t *testing.T) {
	pair := made(t, aPair, dual())
	conf := func(options string) string { return string(portmap(options, aPort).Raw) }
	one := func(key, value string) string {
		m := map[string]string{"hostPort": "8080", "containerPort": "80", "protocol": `"tcp"`}
		m[key] = value
		var parts []string
		for _, k := range []string{"hostPort", "containerPort", "protocol", "hostIP"} {
			if m[k] != "" {
				parts = append(parts, strconv.Quote(k)+":"+m[k])
			}
		}
		return string(portmap("", aPort+",{"+strings.Join(parts, ",")+"}").Raw)
	}
	const at = `plugin portmap: runtimeConfig.portMappings[1]: `
	for _, tc := range []struct {
		conf  string
		chain Chain
		code  model.Code
		want  string
	}{
		{conf(`,"backend":"ipvs"`), pair, 7, `plugin portmap: backend "ipvs" is unknown (choose one of nftables, iptables)`},
		{conf(`,"backend":""`), pair, 7, `plugin portmap: backend "" is unknown (choose one of nftables, iptables)`},
		{conf(`,"backend":4`), pair, 6, `plugin portmap: backend is number, want string`},
		{conf(`,"snat":"yes"`), pair, 6, `plugin portmap: snat is string, want bool`},
		{conf(`,"masqAll":1`), pair, 6, `plugin portmap: masqAll is number, want bool`},
		{
			conf(`,"markMasqBit":32`), pair, 7,
			`plugin portmap: markMasqBit 32 is not between 0 and 31 (a mark has the bits 0 to 31)`,
		},
		{
			conf(`,"markMasqBit":-1`), pair, 7,
			`plugin portmap: markMasqBit -1 is not between 0 and 31 (a mark has the bits 0 to 31)`,
		},
		{conf(`,"markMasqBit":"13"`), pair, 6, `plugin portmap: markMasqBit is string, want int`},
		{
			conf(`,"markMasqBit":13,"externalSetMarkChain":"X"`), pair, 7,
			`plugin portmap: markMasqBit 13 contradicts externalSetMarkChain "X" (leave one of them out)`,
		},
		{
			conf(`,"externalSetMarkChain":"a b"`), pair, 7,
			`plugin portmap: externalSetMarkChain "a b" is not a valid chain name (1 to 28 characters, no white space, no - or ! at the beginning)`,
		},
		{
			conf(`,"externalSetMarkChain":""`), pair, 7,
			`plugin portmap: externalSetMarkChain "" is not a valid chain name (1 to 28 characters, no white space, no - or ! at the beginning)`,
		},
		{conf(`,"externalSetMarkChain":[]`), pair, 6, `plugin portmap: externalSetMarkChain is array, want string`},
		{
			conf(`,"backend":"nftables","externalSetMarkChain":"X"`), pair, 7,
			`plugin portmap: externalSetMarkChain is for iptables, and backend is "nftables" (leave backend out, or write the option for that backend)`,
		},
		{
			conf(`,"backend":"nftables","conditionsV4":["-s","10.0.0.0/8"]`), pair, 7,
			`plugin portmap: conditionsV4 is for iptables, and backend is "nftables" (leave backend out, or write the option for that backend)`,
		},
		{
			conf(`,"backend":"iptables","conditionsV6":["ip6 saddr fd00::/8"]`), pair, 7,
			`plugin portmap: conditionsV6 is for nftables, and backend is "iptables" (leave backend out, or write the option for that backend)`,
		},
		{
			conf(`,"conditionsV4":["-s","10.0.0.0/8"],"conditionsV6":["ip6 saddr fd00::/8"]`), pair, 7,
			`plugin portmap: conditionsV6 is written for nftables, conditionsV4 for iptables (write both in the syntax of nft, or of iptables)`,
		},
		{
			conf(`,"conditionsV4":["-s","10.0.0.0/8","-j","DROP"]`), pair, 7,
			`plugin portmap: conditionsV4[2] "-j" is not a condition (a condition is a match)`,
		},
		{
			conf(`,"conditionsV4":["-s","a\nb"]`), pair, 7,
			`plugin portmap: conditionsV4[1] "a\nb" is not an argument (one iptables argument in each string)`,
		},
		{
			conf(`,"conditionsV6":["ip6 saddr fd00::/8 drop"]`), pair, 7,
			`plugin portmap: conditionsV6[0] "ip6 saddr fd00::/8 drop" is not a condition (a condition is a match)`,
		},
		{conf(`,"conditionsV4":"ip saddr 10.0.0.0/8"`), pair, 6, `plugin portmap: conditionsV4 is string, want list`},
		{conf(`,"conditionsV4":[4]`), pair, 6, `plugin portmap: conditionsV4 is number, want string`},
		{one("hostPort", "0"), pair, 7, at + `hostPort 0 is not between 1 and 65535`},
		{one("hostPort", "65536"), pair, 7, at + `hostPort 65536 is not between 1 and 65535`},
		{one("hostPort", `"80"`), pair, 6, `plugin portmap: runtimeConfig.portMappings.hostPort is string, want int`},
		{one("containerPort", "0"), pair, 7, at + `containerPort 0 is not between 1 and 65535`},
		{one("containerPort", "-1"), pair, 7, at + `containerPort -1 is not between 1 and 65535`},
		{
			one("containerPort", "8.5"), pair, 6,
			`plugin portmap: runtimeConfig.portMappings.containerPort is number 8.5, want int`,
		},
		{one("protocol", `"icmp"`), pair, 7, at + `protocol "icmp" is unknown (choose one of tcp, udp, sctp)`},
		{one("protocol", ""), pair, 7, at + `protocol "" is unknown (choose one of tcp, udp, sctp)`},
		{one("protocol", "6"), pair, 6, `plugin portmap: runtimeConfig.portMappings.protocol is number, want string`},
		{
			one("hostIP", `"localhost"`), pair, 7,
			at + `hostIP "localhost" is not an address (leave it out for all addresses of the node)`,
		},
		{
			one("hostIP", `"fe80::1%eth0"`), pair, 7,
			at + `hostIP "fe80::1%eth0" is not an address (leave it out for all addresses of the node)`,
		},
		{
			one("hostIP", `"::1"`), pair, 7,
			at + `hostIP ::1 cannot be mapped: the kernel drops replies to it from another interface (use 127.0.0.1)`,
		},
		{one("hostIP", `80`), pair, 6, `plugin portmap: runtimeConfig.portMappings.hostIP is number, want string`},
		{one("containerPort", "81"), pair, 7, at + `hostPort 8080/tcp is already mapped to containerPort 80 (map it once)`},
		{
			string(portmap("", aPort+","+strings.Replace(aPort, `80,"p`, `81,"hostIP":"192.0.2.1","p`, 1)).Raw), pair, 7,
			at + `hostPort 8080/tcp is already mapped to containerPort 80 (map it once)`,
		},
		{
			`{"type":"portmap","runtimeConfig":{"portMappings":{}}}`, pair, 6,
			`plugin portmap: runtimeConfig.portMappings is object, want list`,
		},
		{
			`{"type":"portmap"}`,
			Chain{},
			7,
			`plugin portmap: prevResult is missing (put it into a list, after the plugin that creates the interface)`,
		},
		{
			conf(`,"backend":"iptables"`), pair, 7,
			`plugin portmap: backend iptables needs the program iptables-restore, which is not on this node (install iptables, or use "nftables")`,
		},
	} {
		_, err := Portmap{}.Plan(Input{
			Conf: model.PluginConf{Type: "portmap", Raw: json.RawMessage(tc.conf)}, Request: request(), Chain: tc.chain,
		})
		var f *model.Error
		if !errors.As(err, &f) || f.Code != tc.code || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %d %s", tc.conf, err, tc.code, tc.want)
		}
	}
}

func TestPortWarnings(t *testing.T) {
	for options, want := range map[string]string{
		`,"snat":false,"masqAll":true,"markMasqBit":5`: `[{masqAll masqAll has no effect with snat false remove it, or snat} {markMasqBit markMasqBit has no effect with snat false remove it, or snat}]`,
		`,"snat":false`:   `[]`,
		`,"masqAll":true`: `[]`,
	} {
		if got := fmt.Sprint(Portmap{}.Warnings(portmap(options, "").Raw)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", options, got, want)
		}
	}
}

// FuzzPortmap: a packet matches at most one accepted mapping, and no two elements of a map have the same key.
func FuzzPortmap(f *testing.F) {
	f.Add("", allPorts)
	f.Add(`,"backend":"iptables","conditionsV4":["-s","10.0.0.0/8"]`, aPort)
	f.Add(`,"markMasqBit":1,"conditionsV4":["ip saddr 10.0.0.0/8"]`, aPort)
	chain := made(nil, aBridge, dual())
	f.Fuzz(func(t *testing.T, options, mappings string) {
		conf := model.PluginConf{Type: "portmap"}
		conf.Raw = json.RawMessage(`{"type":"portmap"` + options + `,"runtimeConfig":{"portMappings":[` + mappings + `]}}`)
		in := Input{Conf: conf, Request: request(), Chain: chain, Answers: programs(nil)}
		step, err := Portmap{}.Plan(in)
		if err != nil {
			var fault *model.Error
			if !errors.As(err, &fault) {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		for _, table := range step.Fragment.Host.Tables {
			for _, set := range table.Sets {
				seen := map[string]bool{}
				for _, e := range set.Elements {
					key := strings.Join(e.Key, " ")
					if seen[key] {
						t.Errorf("%s: %s occurs twice in %s", conf.Raw, key, set.Name)
					}
					seen[key] = true
				}
			}
		}
		for _, table := range step.Fragment.Host.IPTables {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					if strings.ContainsAny(r.Text, "\n\x00") {
						t.Errorf("%s: rule %q", conf.Raw, r.Text)
					}
				}
			}
		}
	})
}
