// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func request() model.Request {
	return model.Request{
		Network: "net", CNIVersion: "1.1.0", ContainerID: "c0ffee", Netns: "/run/netns/c0ffee", IfName: "eth0",
	}
}

func confOf(text string) model.PluginConf {
	var t struct{ Type string }
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		panic(err)
	}
	return model.PluginConf{Type: t.Type, Raw: json.RawMessage(text)}
}

func ip(address, gateway string) model.IP {
	out := model.IP{Address: netip.MustParsePrefix(address)}
	if gateway != "" {
		out.Gateway = netip.MustParseAddr(gateway)
	}
	return out
}

func v4() *model.Result {
	return &model.Result{
		IPs:    []model.IP{ip("10.1.0.5/24", "10.1.0.1")},
		Routes: []model.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}
}

func dual() *model.Result {
	table, scope := 100, 0
	return &model.Result{
		IPs: []model.IP{ip("10.1.0.5/24", "10.1.0.1"), ip("fd00:1::5/64", "fd00:1::1")},
		Routes: []model.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00:1::1")},
			{
				Dst: netip.MustParsePrefix("192.168.0.0/16"), GW: netip.MustParseAddr("10.1.0.9"), MTU: 1400, AdvMSS: 1300,
				Priority: 50, Table: &table, Scope: &scope,
			},
		},
		DNS: model.DNS{Nameservers: []string{"10.0.0.53"}},
	}
}

// exists returns the answer that the link exists.
func exists(space state.SpaceName, l state.Link, prefixes ...string) state.Answers {
	a := state.Answer{Found: true, Link: l}
	for _, p := range prefixes {
		a.Addrs = append(a.Addrs, state.Addr{Link: l.Name, Prefix: netip.MustParsePrefix(p)})
	}
	return state.Answers{{Space: space, Link: l.Name}: a}
}

func goldens() map[string]Input {
	bridge := state.Link{Name: "br0", Kind: state.Bridge, MAC: state.MAC{2, 1, 2, 3, 4, 5}, Up: state.On()}
	ours := bridge
	ours.Alias = SharedMark
	return map[string]Input{
		"loopback":      {Conf: confOf(`{"type":"loopback"}`)},
		"loopback-prev": {Conf: confOf(`{"type":"loopback"}`), Chain: Chain{Prev: v4()}},
		"loopback-up": {
			Conf:    confOf(`{"type":"loopback"}`),
			Answers: exists(state.Pod, state.Link{Name: "lo", Up: state.On()}, "127.0.0.1/8"),
		},
		"ptp": {Conf: confOf(`{"type":"ptp","ipam":{"type":"x"}}`), IPAM: v4()},
		"ptp-dual": {
			Conf: confOf(`{"type":"ptp","mtu":1400,"ipMasq":true,"ipam":{"type":"x"},"dns":{"domain":"d"}}`), IPAM: dual(),
		},
		"ptp-two": {
			Conf: confOf(`{"type":"ptp","ipam":{"type":"x"}}`),
			IPAM: &model.Result{
				IPs: []model.IP{ip("10.1.0.5/24", "10.1.0.1"), ip("10.1.0.6/24", "10.1.0.1"), ip("10.9.0.1/32", "10.1.0.1")},
			},
		},
		"bridge-l2": {
			Conf: confOf(`{"type":"bridge","bridge":"br0"}`), Answers: state.Answers{bootID(): {Found: true, Value: "b007"}},
		},
		"bridge-plain": {Conf: confOf(`{"type":"bridge","ipam":{"type":"x"}}`), IPAM: v4()},
		"bridge-gateway": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"hairpinMode":true,"mtu":1400,
			"ipam":{"type":"x"}}`), IPAM: dual(),
		},
		"bridge-no-gateway-given": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipam":{"type":"x"}}`),
			IPAM: &model.Result{IPs: []model.IP{ip("10.1.0.5/24", ""), ip("fd00:1::5/64", "")}},
		},
		"bridge-ours": {
			Conf: confOf(`{"type":"bridge","bridge":"br0","isGateway":true,"ipam":{"type":"x"}}`), IPAM: v4(),
			Answers: exists(state.Host, ours, "10.1.0.1/24"),
		},
		"bridge-foreign": {
			Conf: confOf(
				`{"type":"bridge","bridge":"br0","promiscMode":true,"mtu":9000,"ipam":{"type":"x"},"runtimeConfig":{"mac":"02:00:00:00:00:99"}}`,
			), IPAM: v4(), Answers: exists(state.Host, bridge, "192.168.0.1/24"),
		},
		"bridge-force": {
			Conf:    confOf(`{"type":"bridge","bridge":"br0","isGateway":true,"forceAddress":true,"ipam":{"type":"x"}}`),
			IPAM:    dual(),
			Answers: exists(state.Host, ours, "10.9.0.1/24", "fd00:1::9/64", "fd00:9::1/64", "fe80::1/64"),
		},
	}
}

func TestGolden(t *testing.T) {
	all := goldens()
	maps.Copy(all, bridgeGoldens())
	maps.Copy(all, shapeGoldens())
	maps.Copy(all, tuneGoldens())
	maps.Copy(all, kindsGoldens())
	maps.Copy(all, portmapGoldens())
	maps.Copy(all, calicoGoldens())
	maps.Copy(all, directGoldens())
	maps.Copy(all, macvtapGoldens())
	for name, in := range all {
		t.Run(name, func(t *testing.T) {
			origin := in.Request.Origin
			in.Request = request()
			in.Request.Origin = origin
			p := Builtin()[in.Conf.Type]
			if p == nil || Validate(p, in.Conf) != nil { // only the agent plans it
				p = InAgent()[in.Conf.Type]
			}
			if err := Validate(p, in.Conf); err != nil {
				t.Fatal(err)
			}
			queries, err := p.Observe(in)
			if err != nil {
				t.Fatal(err)
			}
			step, err := p.Plan(in)
			if err != nil {
				t.Fatal(err)
			}
			got := show(t, queries, step)
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got), rewrite with -update:\n%s", file, diff)
			}
			// After Decode the planner must not use the configuration's text.
			once := in
			if once.Decoded, err = Decode(p, in.Conf); err != nil {
				t.Fatal(err)
			}
			once.Conf.Raw = json.RawMessage("read a second time")
			again, err := p.Observe(once)
			if err != nil {
				t.Fatal(err)
			}
			planned, err := p.Plan(once)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, show(t, again, planned)); diff != "" {
				t.Errorf("by the decoded configuration (-by its text +got):\n%s", diff)
			}
			second, err := p.Plan(in)
			if err != nil || show(t, queries, second) != got {
				t.Errorf("a second plan differs: %v", err)
			}
		})
	}
}

// show prints a plan in readable form.
func show(t *testing.T, queries []state.Query, s Step) string {
	t.Helper()
	var b strings.Builder
	for _, q := range queries {
		fmt.Fprintf(&b, "ask %s %s%s%s%s\n", q.Space, q.Link, q.Sysctl, q.Program,
			askLinkOf(q)+askShape(q)+askTune(q)+askPort(q)+askKinds(q))
	}
	fmt.Fprintf(&b, "owner %s\n", s.Fragment.Owner)
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		fmt.Fprintf(&b, "%s:\n", name)
		showSpace(&b, *s.Fragment.Space(name))
	}
	for _, e := range s.Fragment.Effects {
		fmt.Fprintln(&b, e)
	}
	for _, j := range append(s.Fragment.Host.Joins, s.Fragment.Pod.Joins...) {
		fmt.Fprintln(&b, j)
	}
	for _, g := range s.Guests {
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "guest %s\n", text)
	}
	showTune(&b, s)
	text, err := json.MarshalIndent(s.Result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "result:\n%s\n", text)
	return b.String()
}

func showSpace(b *strings.Builder, s state.Space) {
	for _, l := range s.Links {
		fmt.Fprintf(b, "  %s%s\n", l, shareMark(l.Shared))
	}
	for _, a := range s.Addrs {
		fmt.Fprintf(b, "  %s%s%s%s\n", a, mark(a.NoDAD, " nodad"), mark(a.NoPrefixRoute, " noprefixroute"),
			shareMark(a.Shared))
	}
	for _, r := range s.Routes {
		fmt.Fprintf(b, "  %s%s\n", r, shareMark(r.Shared))
	}
	for _, n := range s.Neighs {
		fmt.Fprintf(b, "  %s\n", n)
	}
	for _, r := range s.Rules {
		fmt.Fprintf(b, "  %s%s\n", r, shareMark(r.Shared))
	}
	for _, c := range s.Sysctls {
		fmt.Fprintf(b, "  %s%s%s\n", c, mark(c.IfPresent, " (if present)"), shareMark(c.Shared))
	}
	for _, t := range s.Tables {
		fmt.Fprintf(b, "  table %s %s%s\n", t.Family, t.Name, shareMark(t.Shared))
		for _, set := range t.Sets {
			fmt.Fprintf(b, "    set %s { %s }%s\n", set.Name, set.Key+mark(set.Data != "", " : "+set.Data),
				mark(set.Interval, " interval"))
			for _, e := range set.Elements {
				fmt.Fprintf(b, "      %s comment %q%s\n", strings.TrimSpace(strings.Join(e.Key, " . ")+" "+e.Stateful)+showValue(e),
					e.Comment, shareMark(e.Shared))
			}
		}
		for _, c := range t.Chains {
			fmt.Fprintf(b, "    chain %s { type %s hook %s priority %d; policy %s; }\n", c.Name, c.Type, c.Hook,
				c.Priority, c.Policy)
			for _, r := range c.Rules {
				fmt.Fprintf(b, "      %s\n", r.Text)
			}
		}
	}
	showChains(b, s.IPTables)
	showShape(b, s)
}

func showChains(b *strings.Builder, tables []state.IPTables) {
	for _, t := range tables {
		fmt.Fprintf(b, "  %s\n", t)
		for _, c := range t.Chains {
			fmt.Fprintf(b, "    chain %s%s\n", c.Name, shareMark(c.Shared))
			for _, r := range c.Rules {
				fmt.Fprintf(b, "      %s%s%s\n", r.Text, mark(r.First, " (first)"), shareMark(r.Shared))
			}
		}
	}
}

func mark(on bool, s string) string {
	if on {
		return s
	}
	return ""
}

func shareMark(on bool) string { return mark(on, " (shared)") }

func askLinkOf(q state.Query) string {
	if !q.LinkOf.IsValid() {
		return ""
	}
	return "link of " + q.LinkOf.String()
}
