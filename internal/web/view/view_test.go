// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/plan/explain"
	plan "github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/web/view"
)

// mesh returns nodes with pods and paths to each other.
func mesh(nodes, pods int) map[string]explain.Node {
	out := map[string]explain.Node{}
	name := func(i int) string { return fmt.Sprintf("node%d", i+1) }
	for i := range nodes {
		n := explain.Node{Name: name(i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 18, byte(i >> 8), byte(i)})}}
		for p := range pods {
			a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(p)})
			n.Pods = append(n.Pods, explain.Pod{
				Name: fmt.Sprintf("shop/pod-%d-%d", i+1, p), Stage: "done",
				Interfaces: []explain.Interface{{Name: "eth0", Addrs: []netip.Prefix{netip.PrefixFrom(a, 32)}}},
			})
		}
		for j := range nodes {
			if i != j && (nodes < 50 || j < 3) {
				n.Peers = append(n.Peers, explain.Peer{
					Name: name(j), Paths: []explain.Path{{Link: "vxlan.weft", Tunnel: true}},
				})
			}
		}
		out[n.Name] = n
	}
	return out
}

// overlap reports whether two rectangles have a common area.
func overlap(ax, ay, aw, ah, bx, by, bw, bh int) bool {
	return ax < bx+bw && bx < ax+aw && ay < by+bh && by < ay+ah
}

// elements counts what a browser would draw, as the page draws it.
func elements(m view.Map) int {
	n := 0
	for _, b := range m.Boxes {
		n += 6 + 4*len(b.Chips)
	}
	for _, b := range m.Buses {
		n += 2 + 2*len(b.Lines)
	}
	return n + 3*len(m.Gaps)
}

// Whatever the size of the cluster and the screen: everything is in the picture, nothing overlaps, and a browser has less
// than 2,000 elements to draw.
func TestMapLayout(t *testing.T) {
	for _, size := range []struct{ nodes, pods int }{{0, 0}, {1, 0}, {1, 500}, {3, 5}, {7, 110}, {48, 30}, {49, 30}, {400, 20}, {1000, 20}} {
		for _, columns := range []int{-1, 1, 4} {
			all := mesh(size.nodes, size.pods)
			focus := []string{"", "node:node1", "node:no-such", "zone:a", "nonsense"}
			if size.nodes > 160 {
				focus = append(focus, view.NewMap(view.MapInput{Nodes: all, Columns: columns}).Boxes[0].Focus)
			}
			for _, f := range focus {
				at := fmt.Sprintf("%d nodes, %d pods, %d columns, focus %q", size.nodes, size.pods, columns, f)
				m := view.NewMap(view.MapInput{Nodes: all, Columns: columns, Focus: f})
				if n := elements(m); n >= 2000 {
					t.Errorf("%s: %d elements", at, n)
				}
				for i, b := range m.Boxes {
					if b.X < 0 || b.Y < 0 || b.X+b.W > m.Width || b.Y+b.H > m.Height {
						t.Errorf("%s: box %s is outside of the picture", at, b.Name)
					}
					for _, o := range m.Boxes[i+1:] {
						if overlap(b.X, b.Y, b.W, b.H, o.X, o.Y, o.W, o.H) {
							t.Errorf("%s: boxes %s and %s overlap", at, b.Name, o.Name)
						}
					}
					for j, c := range b.Chips {
						if c.X < b.X || c.Y < b.Y || c.X+c.W > b.X+b.W || c.Y+c.H > b.Y+b.H {
							t.Errorf("%s: chip %s is outside of %s", at, c.Name, b.Name)
						}
						for _, o := range b.Chips[j+1:] {
							if overlap(c.X, c.Y, c.W, c.H, o.X, o.Y, o.W, o.H) {
								t.Errorf("%s: chips %s and %s overlap", at, c.Name, o.Name)
							}
						}
					}
					if pods := size.pods - len(b.Chips) - b.More; b.Kind == "node" && pods != 0 && len(m.Boxes) <= 48 {
						t.Errorf("%s: %s has %d pods that are neither drawn nor counted", at, b.Name, pods)
					}
				}
				if len(m.Pods) > 200 || len(m.Nodes) > 400 {
					t.Errorf("%s: tables of %d pods and %d nodes", at, len(m.Pods), len(m.Nodes))
				}
			}
		}
	}
}

// The way from everything to a node leads over its zone, and back.
func TestMapZoom(t *testing.T) {
	all := mesh(1000, 2)
	zones := map[string]string{}
	for name := range all {
		zones[name] = "zone" + name[len(name)-1:]
	}
	top := view.NewMap(view.MapInput{Nodes: all, Zones: zones, Columns: 4})
	if len(top.Nodes)+top.MoreNodes != 1000 || top.MorePods+len(top.Pods) != 2000 {
		t.Errorf("tables of %d nodes and %d more, %d pods and %d more", len(top.Nodes), top.MoreNodes, len(top.Pods), top.MorePods)
	}
	if len(top.Boxes) != 10 || top.Up != nil || top.Boxes[0].Kind != "zone" || !strings.Contains(top.Boxes[0].Text, "100 nodes, 200 pods") {
		t.Fatalf("top %+v", top.Boxes)
	}
	zone := view.NewMap(view.MapInput{Nodes: all, Zones: zones, Columns: 4, Focus: top.Boxes[0].Focus})
	if len(zone.Boxes) != 100 || zone.Up == nil || *zone.Up != "" {
		t.Fatalf("zone: %d boxes, up %v", len(zone.Boxes), zone.Up)
	}
	node := view.NewMap(view.MapInput{Nodes: all, Zones: zones, Columns: 4, Focus: zone.Boxes[0].Focus})
	if len(node.Boxes) != 1 || len(node.Boxes[0].Chips) != 2 || node.Up == nil || *node.Up != top.Boxes[0].Focus {
		t.Fatalf("node: %+v, up %v", node.Boxes, node.Up)
	}
}

// A zone with too many nodes is divided into groups by their names, like the nodes without a zone.
func TestMapGroups(t *testing.T) {
	all := mesh(1000, 2)
	zones := map[string]string{}
	for i := range 700 {
		zones[fmt.Sprintf("node%d", i+1)] = "a"
	}
	at := func(focus string) view.Map {
		return view.NewMap(view.MapInput{Nodes: all, Zones: zones, Columns: 4, Focus: focus})
	}
	names := func(m view.Map) (out []string) {
		for _, b := range m.Boxes {
			out = append(out, b.Name+": "+b.Text)
		}
		return out
	}
	top := at("")
	if len(top.Boxes) != 7 || names(top)[0] != "node701…node750: 50 nodes, 100 pods" || names(top)[6] != "zone a: 700 nodes, 1400 pods" {
		t.Fatalf("top %q", names(top))
	}
	zone := at(top.Boxes[6].Focus)
	if len(zone.Boxes) != 14 || names(zone)[1] != "node51…node100: 50 nodes, 100 pods" || *zone.Up != "" {
		t.Fatalf("zone: %q, up %q", names(zone), *zone.Up)
	}
	group := at(zone.Boxes[1].Focus)
	if len(group.Boxes) != 50 || group.Boxes[0].Name != "node51" || *group.Up != "zone:a" ||
		group.Title != "zone a, node51…node100: 50 nodes" {
		t.Fatalf("group: %q, title %q, up %q", names(group), group.Title, *group.Up)
	}
	if node := at("node:node77"); *node.Up != zone.Boxes[1].Focus {
		t.Errorf("from a node up to %q", *node.Up)
	}
	if node := at("node:node777"); *node.Up != top.Boxes[1].Focus {
		t.Errorf("from a node without a zone up to %q", *node.Up)
	}
}

// Of nodes without links between them in the picture a summary is enough, which draws the same.
func TestMapSummary(t *testing.T) {
	all := mesh(100, 2)
	zones := map[string]string{"node3": "a", "node1": "a"}
	var names []string
	for n := range all {
		names = append(names, n)
	}
	for focus, want := range map[string][]string{"": nil, "zone:a": {"node1", "node3"}, "zone:b": nil} {
		if got := view.Linked(names, zones, focus); !slices.Equal(got, want) {
			t.Errorf("focus %q: links between %q, want %q", focus, got, want)
		}
	}
	if got := view.Linked([]string{"node1", "node2"}, nil, ""); !slices.Equal(got, []string{"node1", "node2"}) {
		t.Errorf("links between %q of two nodes", got)
	}
	in := view.MapInput{Nodes: all, Zones: zones, Columns: 3}
	want := view.NewMap(in)
	in.Nodes = map[string]explain.Node{}
	for name, n := range all {
		in.Nodes[name] = n.Summary()
	}
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(view.NewMap(in))
	if string(a) != string(b) {
		t.Error("the map by summaries is not that by all facts")
	}
	if got := want.Nodes[3].Paths; !slices.Equal(got, []string{"tunnel vxlan.weft to 3 nodes"}) {
		t.Errorf("paths %q", got)
	}
	in.Nodes = map[string]explain.Node{"node1": all["node1"].Summary(), "node9": all["node9"].Summary()}
	if m := view.NewMap(in); len(m.Gaps) > 0 {
		t.Errorf("a summary has no peers by name, and leaves no path missing: %+v", m.Gaps)
	}
}

// What cannot be listed is counted, and nodes with a finding are the first.
func TestHealthOfManyNodes(t *testing.T) {
	var all []nodestatus.Status
	for i := range 500 {
		s := nodestatus.Status{Node: fmt.Sprintf("node%d", i+1)}
		if i >= 100 {
			s.Findings = []nodestatus.Finding{{Level: nodestatus.Warn, Check: "ipam", Message: fmt.Sprintf("finding %d", i)}}
		}
		if i == 400 {
			s.Findings[0].Level = nodestatus.Bad
		}
		all = append(all, s)
	}
	h := view.NewHealth(nodestatus.Merge(all, nil, nodestatus.Shared{}), view.Rates{})
	if len(h.Findings) != 300 || h.MoreFindings != 100 || h.Bad != 1 || h.Warnings != 399 {
		t.Errorf("%d findings, %d more, %d bad, %d warnings", len(h.Findings), h.MoreFindings, h.Bad, h.Warnings)
	}
	if h.ByNode[0].Node != "node401" || h.ByNode[1].Node != "node101" || h.ByNode[400].Node != "node1" {
		t.Errorf("nodes in the order %s, %s … %s", h.ByNode[0].Node, h.ByNode[1].Node, h.ByNode[400].Node)
	}
}

// A node without an answer is in the table, too, and the first.
func TestHealthOfSilentNode(t *testing.T) {
	h := view.NewHealth(nodestatus.Merge([]nodestatus.Status{{Node: "node1"}}, map[string]string{"node2": "no answer"}, nodestatus.Shared{}), view.Rates{})
	if len(h.ByNode) != 2 || h.ByNode[0].Node != "node2" || h.ByNode[0].State != "silent" || h.ByNode[1].State != "ok" {
		t.Errorf("%+v", h.ByNode)
	}
}

// An agent that does not answer, a node without a path to another, and the pods that are searched for.
func TestMapStates(t *testing.T) {
	all := mesh(3, 2)
	n := all["node1"]
	n.Peers = slices.DeleteFunc(n.Peers, func(p explain.Peer) bool { return p.Name == "node2" })
	n.Pods[0].Interfaces[0].VM, n.Pods[1].Stage = true, "pending"
	n.Pods[1].Interfaces = append(n.Pods[1].Interfaces, explain.Interface{Name: "net1", Network: "shop/storage"})
	all["node1"] = n
	delete(all, "node3")
	in := view.MapInput{
		Nodes: all, Silent: map[string]string{"node3": "no agent answers"}, Levels: map[string]string{"node2": "warn"}, Columns: 3,
	}
	m := view.NewMap(in)
	var states []string
	for _, b := range m.Boxes {
		states = append(states, b.Name+" "+b.State+" "+b.Text)
	}
	want := []string{"node1 ok 1 pod, 1 VM", "node2 warn 2 pods", "node3 silent the agent does not answer"}
	if !slices.Equal(states, want) {
		t.Errorf("states %q", states)
	}
	if len(m.Gaps) != 1 || m.Gaps[0].From != "node1" || m.Gaps[0].To != "node2" ||
		!slices.Contains(m.Nodes[0].Paths, "no path to node2") || m.Nodes[2].Why != "no agent answers" {
		t.Errorf("gaps %+v, nodes %+v", m.Gaps, m.Nodes)
	}
	chips := m.Boxes[0].Chips
	if chips[0].Kind != "vm" || chips[1].State != "pending" || !slices.Equal(chips[1].Networks, []string{"shop/storage"}) {
		t.Errorf("chips %+v", chips)
	}
	for find, pods := range map[string]int{"pod-2": 2, "10.0.0.1": 1, "STORAGE": 1, "nothing": 0, " ": 4} {
		in.Find = find
		if m := view.NewMap(in); len(m.Pods) != pods {
			t.Errorf("find %q: %+v", find, m.Pods)
		}
	}
}

func TestHealth(t *testing.T) {
	c := nodestatus.Merge([]nodestatus.Status{
		{Node: "node1", Version: "v1", Attachments: 3, Broken: 1, Peers: 1, Reached: 1, Connections: 5, MaxConnections: 10, Findings: []nodestatus.Finding{
			{Level: nodestatus.Bad, Check: "attachments", Message: "one differs", Hint: "see it"},
		}},
		{Node: "node2", Version: "v1", Findings: []nodestatus.Finding{{Level: nodestatus.Skip, Check: "doctor", Message: "no time"}}},
	}, map[string]string{"node3": "no answer"}, nodestatus.Shared{})
	h := view.NewHealth(c, view.Rates{})
	if h.Good || h.Answered != 2 || h.Nodes != 3 || len(h.Findings) != 3 || h.Findings[0].Where != "node1" || h.Findings[0].Hint != "see it" {
		t.Errorf("%+v", h)
	}
	if h.ByNode[0].State != "silent" || h.ByNode[0].Node != "node3" || h.ByNode[1].State != "bad" ||
		h.ByNode[1].Attachments != "2 of 3" || h.ByNode[1].Connections != "50 %" ||
		h.ByNode[2].State != "ok" || h.ByNode[2].Connections != "not tracked" {
		t.Errorf("%+v", h.ByNode)
	}
	if levels := view.NodeLevels(c); levels["node3"] != "bad" {
		t.Errorf("levels %v", levels)
	}
}

func TestPolicies(t *testing.T) {
	web := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "web"}
	db := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"}
	pod := func(namespace, name, app string) model.Pod {
		return model.Pod{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}, Phase: "Running"}
	}
	host := pod("shop", "host", "web")
	host.HostNetwork = true
	v := view.NewPolicies(view.PoliciesInput{
		Policies: []model.Policy{
			{PolicyKey: web, Subject: model.PodPeer{Namespace: "shop", Pods: model.Selector{Labels: map[string]string{"app": "web"}}},
				Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
					Action: model.PolicyAccept,
					Peers:  []model.PolicyPeer{{Block: &model.IPBlock{CIDR: netip.MustParsePrefix("10.0.0.0/8")}}},
					Ports:  []model.PolicyPort{{Protocol: model.TCP, First: 80, Last: 80}, {Protocol: model.UDP, First: 1, Last: 9}},
				}}}},
			{PolicyKey: db, Subject: model.PodPeer{Namespace: "shop", Pods: model.Selector{Labels: map[string]string{"app": "db"}}},
				Ingress: model.PolicyDirection{On: true}, Errors: []string{"a rule is invalid"}},
		},
		Pods:    []model.Pod{pod("shop", "web", "web"), pod("other", "web", "web"), host},
		Invalid: []view.Row{{Name: "NetworkPolicy shop/broken", Text: "spec is missing"}},
		Summaries: []policy.Summary{
			{Node: "node1", Known: true, Denied: []policy.Denied{
				{By: "NetworkPolicy shop/web ingress", Packets: 3}, {By: "NetworkPolicy shop/web-2 ingress", Packets: 9},
			}},
			{Node: "node2", Denied: []policy.Denied{{By: "NetworkPolicy shop/web,shop/db ingress", Packets: 4}}, Policies: []policy.Known{
				{PolicyKey: db, Unsupported: "a rule is invalid"},
			}},
		},
		Silent: map[string]string{"node10": "no answer"},
	})
	var got []string
	for _, p := range v.Policies {
		got = append(got, fmt.Sprintf("%s %d %v %q %q", p.Name, p.Pods, p.Denied, p.Ingress, p.Faults))
	}
	want := []string{
		`shop/db 0 4 [] ["a rule is invalid" "it selects no pods, so it has no effect"]`,
		`NetworkPolicy shop/broken 0 0 [] ["spec is missing"]`,
		`shop/web 1 7 ["accept 10.0.0.0/8, ports 80/tcp, 1-9/udp"] []`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if v.Pods != 2 || v.Open != 1 || len(v.Denied) != 1 || v.Denied[0].Packets != 9 || len(v.NotEnforced) != 2 ||
		v.NotEnforced[0].Name != "node2" || v.NotEnforced[1].Text != "no answer" {
		t.Errorf("%+v", v)
	}
	if b, _ := json.Marshal(v); strings.Contains(string(b), `"selects":null`) {
		t.Errorf("a list is null: %s", b)
	}
}

func TestVMs(t *testing.T) {
	facts := mesh(2, 2)
	n := facts["node1"]
	n.Pods[0].Interfaces[0].VM, n.Pods[0].Interfaces[0].Joined = true, true
	v := view.NewVMs(view.VMsInput{
		Facts: facts, Silent: map[string]string{"node3": "no answer"},
		States:     map[string][]view.VMState{"node1": {{VM: "shop/vm", Pod: "shop/pod-1-0", State: "here"}}},
		Bindings:   map[string][]view.VMBinding{"node1": {{VM: "shop/vm", Interface: "eth0", Binding: "masquerade"}}},
		Migrations: []view.Migration{{VM: "shop/vm", Target: "node2"}},
	})
	if len(v.VMs) != 1 || v.VMs[0].VM != "shop/vm" || v.VMs[0].State != "here" || v.VMs[0].Interfaces[0].Binding != "masquerade" ||
		len(v.Migrations) != 1 || len(v.Unknown) != 1 {
		t.Errorf("%+v", v)
	}
}

func BenchmarkMap(b *testing.B) {
	all := mesh(1000, 20)
	for b.Loop() {
		view.NewMap(view.MapInput{Nodes: all, Columns: 4})
	}
}

// TestPoliciesAtHosts: a policy that selects host endpoints has an effect without pods. Which those are is what agents say.
func TestPoliciesAtHosts(t *testing.T) {
	nodes := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "nodes"}
	none := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "none"}
	in := view.PoliciesInput{Policies: []model.Policy{{PolicyKey: nodes}, {PolicyKey: none}}}
	for _, at := range [][2]string{{"n2", "*"}, {"n10", "eth0"}} {
		stage := plan.HostStageView{Stage: "local", Policies: []model.PolicyKey{nodes}}
		in.Summaries = append(in.Summaries, policy.Summary{Node: at[0], Known: true, HostEndpoints: []plan.HostEndpointView{
			{Name: "h", Node: at[0], Interface: at[1], Stages: []plan.HostStageView{stage, stage}},
		}})
	}
	row := func(v view.Policies, name string) view.PolicyRow {
		return v.Policies[slices.IndexFunc(v.Policies, func(p view.PolicyRow) bool { return p.Name == name })]
	}
	v := view.NewPolicies(in)
	if r := row(v, "nodes"); !slices.Equal(r.Hosts, []string{"h of n2 at all interfaces", "h of n10 at eth0"}) || len(r.Faults) > 0 {
		t.Errorf("%+v", r)
	}
	if r := row(v, "none"); !slices.Equal(r.Faults, []string{"it selects no pods and no host endpoints, so it has no effect"}) {
		t.Errorf("%+v", r)
	}
	in.Silent = map[string]string{"n3": "no answer"}
	if r := row(view.NewPolicies(in), "none"); len(r.Faults) != 1 || !strings.Contains(r.Faults[0], "not known") {
		t.Errorf("%+v", r)
	}
	if b, _ := json.Marshal(v); strings.Contains(string(b), `"hosts":null`) {
		t.Errorf("a list is null: %s", b)
	}
}

// Calico's policies have their selectors and the conditions of their rules as text.
func TestCalicoPolicies(t *testing.T) {
	labels, err := model.ParseExpression(`app == "web" && pcns.team == "retail"`)
	if err != nil {
		t.Fatal(err)
	}
	p := model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "web"}, Tier: "first", Order: new(10.5),
		Subject: model.PodPeer{Endpoints: &model.EndpointSelector{Labels: labels}},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{
			{Action: model.PolicyAccept, Conditions: &model.RuleConditions{
				Protocol: model.NumberTCP, Source: model.EndConditions{NotNets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				Destination: model.EndConditions{Ports: []model.PolicyPort{{Protocol: model.TCP, First: 80, Last: 81}}},
			}},
			{Action: model.PolicyDeny, Conditions: &model.RuleConditions{
				Destination: model.EndConditions{Service: &model.ServiceMatch{Namespace: "shop", Name: "till"}},
			}},
			{Action: model.PolicyLog, Conditions: &model.RuleConditions{}},
		}},
	}
	v := view.NewPolicies(view.PoliciesInput{
		Policies: []model.Policy{p}, Namespaces: []model.Namespace{{Name: "shop", Labels: map[string]string{"team": "retail"}}},
		Pods: []model.Pod{
			{Namespace: "shop", Name: "a", Labels: map[string]string{"app": "web"}},
			{Namespace: "other", Name: "b", Labels: map[string]string{"app": "web", "pcns.team": "retail"}},
		},
	})
	row := v.Policies[0]
	if row.Tier != "first, order 10.5" || row.Selector != `labels app == "web" && pcns.team == "retail"` ||
		!slices.Equal(row.Selects, []string{"shop/a"}) ||
		!slices.Equal(row.Ingress, []string{"accept protocol 6, not from 10.0.0.0/8, to ports 80-81/tcp", "deny to Service shop/till", "log everything"}) {
		t.Errorf("%+v", row)
	}
}
