// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// withDefaults returns a list that plans net1 with an address and a default route of each family.
func withDefaults(conf string) Input {
	zero := 0
	in := Input{
		Conf:    model.PluginConf{Type: DefaultRouteType, Raw: []byte(conf)},
		Request: model.Request{Network: "n", ContainerID: "c", IfName: "net1"}, Answers: state.Answers{},
	}
	in.Chain.Prev = &model.Result{
		Interfaces: []model.Interface{{Name: "net1", Sandbox: "/ns"}},
		IPs: []model.IP{
			{Interface: &zero, Address: netip.MustParsePrefix("10.1.0.5/24")},
			{Interface: &zero, Address: netip.MustParsePrefix("fd01::5/64")},
		},
		Routes: []model.Route{
			{Dst: netip.MustParsePrefix("0.0.0.0/0")},
			{Dst: netip.MustParsePrefix("::/0")},
			{Dst: netip.MustParsePrefix("10.9.0.0/16")},
		},
	}
	in.Chain.Pending.Pod.Links = []state.Link{{Name: "net1", Kind: state.Macvlan}}
	in.Chain.Pending.Pod.Routes = []state.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gw: netip.MustParseAddr("10.1.0.1"), Link: "net1"},
		{Dst: netip.MustParsePrefix("::/0"), Gw: netip.MustParseAddr("fd01::1"), Link: "net1"},
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Link: "net1", Table: 100},
		{Dst: netip.MustParsePrefix("10.9.0.0/16"), Link: "net1"},
	}
	return in
}

func TestDefaultRoute(t *testing.T) {
	other := state.Answer{Found: true, Link: state.Link{Name: "eth0"}}
	for _, tc := range []struct {
		name, conf string
		answers    state.Answers
		open       []int // the planned routes that stay
		more       []string
		result     []string
	}{
		{"nothing", `{}`, nil, []int{0, 1, 2, 3}, nil, []string{"0.0.0.0/0", "::/0", "10.9.0.0/16"}},
		{"drop one family", `{"drop":["4"]}`, nil, []int{1, 2, 3}, nil, []string{"::/0", "10.9.0.0/16"}},
		{"drop both", `{"drop":["4","6"]}`, nil, []int{2, 3}, nil, []string{"10.9.0.0/16"}},
		{
			"yield where there is one", `{"yield":true}`,
			state.Answers{otherDefault("6", "net1"): other},
			[]int{0, 2, 3},
			nil,
			[]string{"0.0.0.0/0", "10.9.0.0/16"},
		},
		{
			"via", `{"drop":["4"],"via":["10.1.0.7","10.1.0.8"]}`, nil,
			[]int{1, 2, 3},
			[]string{"route 0.0.0.0/0 via 10.1.0.7 and 10.1.0.8 dev net1"},
			[]string{"::/0", "10.9.0.0/16", "0.0.0.0/0", "0.0.0.0/0"},
		},
	} {
		in := withDefaults(tc.conf)
		if tc.answers != nil {
			in.Answers = tc.answers
		}
		step, err := DefaultRoute{}.Plan(in)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var pending state.List[state.Route]
		for _, i := range tc.open {
			pending = append(pending, in.Chain.Pending.Pod.Routes[i])
		}
		if d := cmp.Diff(pending, step.Pending.Pod.Routes, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
		var more, result []string
		for _, r := range step.Fragment.Pod.Routes {
			more = append(more, r.String())
		}
		for _, r := range step.Result.Routes {
			result = append(result, r.Dst.String())
		}
		if d := cmp.Diff(tc.more, more) + cmp.Diff(tc.result, result); d != "" {
			t.Errorf("%s: %s", tc.name, d)
		}
	}
}

// Routes of a foreign plugin are removed from the kernel, and restored when the attachment is undone.
func TestDefaultRouteOfAForeignPlugin(t *testing.T) {
	in := withDefaults(`{"drop":["4"]}`)
	in.Chain.Pending = state.Fragment{}
	found := state.Route{
		Dst: netip.MustParsePrefix("0.0.0.0/0"), Gw: netip.MustParseAddr("10.1.0.1"), Link: "net1", Protocol: 3,
	}
	queries, err := DefaultRoute{}.Observe(in)
	if err != nil || len(queries) != 1 {
		t.Fatalf("%v %v", queries, err)
	}
	in.Answers[queries[0]] = state.Answer{Found: true, Routes: []state.Route{found}}
	step, err := DefaultRoute{}.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(step.Restore.Pod.Routes) != 1 || len(step.Fragment.Pod.Routes) != 1 || !step.Fragment.Pod.Routes[0].Absent {
		t.Errorf("%+v", step)
	}
}

// A foreign plugin's default route is removed like a planned one if the pod has another one; it stays if the primary
// network has none.
func TestYieldOfAForeignPlugin(t *testing.T) {
	in := withDefaults(`{"yield":true}`)
	in.Chain.Pending = state.Fragment{}
	queries, err := DefaultRoute{}.Observe(in)
	if err != nil || len(queries) != 3 {
		t.Fatalf("%v %v", queries, err)
	}
	in.Answers[routesQuery("net1")] = state.Answer{Found: true, Routes: []state.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gw: netip.MustParseAddr("10.1.0.1"), Link: "net1", Protocol: 3},
		{Dst: netip.MustParsePrefix("::/0"), Gw: netip.MustParseAddr("fd01::1"), Link: "net1", Protocol: 3},
	}}
	in.Answers[otherDefault("4", "net1")] = state.Answer{Found: true, Link: state.Link{Name: "eth0"}}
	step, err := DefaultRoute{}.Plan(in)
	if err != nil {
		t.Fatal(err)
	}
	if got := step.Fragment.Pod.Routes; len(got) != 1 || got[0].String() != "no route 0.0.0.0/0 via 10.1.0.1 dev net1" {
		t.Errorf("%v", got)
	}
	if len(step.Result.Routes) != 2 || len(step.Result.PluginRoutes) != 3 {
		t.Errorf("%+v", step.Result)
	}
}

func TestDefaultRouteOutOfReach(t *testing.T) {
	_, err := DefaultRoute{}.Plan(withDefaults(`{"via":["10.2.0.1"]}`))
	const want = "default-route 10.2.0.1: no address of interface net1 is in its subnet (name a gateway in the subnet of an address of the network)"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
