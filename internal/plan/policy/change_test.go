// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
)

// brief is what changes, in one line.
func brief(changes []policy.Change) string {
	var out []string
	for _, c := range changes {
		if c.Gone {
			out = append(out, "gone")
		}
		for _, s := range c.AddSets {
			out = append(out, "set "+s.Name)
		}
		for _, ch := range c.AddChains {
			out = append(out, "chain "+ch.Name)
		}
		out = append(out, elementsOf("-", c.DeleteElements)...)
		out = append(out, elementsOf("+", c.AddElements)...)
		for _, name := range slices.Concat(c.DeleteChains, c.DeleteSets) {
			out = append(out, "no "+name)
		}
	}
	return strings.Join(out, "; ")
}

func elementsOf(sign string, sets []state.Set) []string {
	var out []string
	for _, s := range sets {
		for _, e := range s.Elements {
			name, _, _ := strings.Cut(s.Name, "/")
			out = append(out,
				strings.TrimSpace(fmt.Sprintf("%s%s %s %s", sign, name, strings.Join(e.Key, " . "), strings.Join(e.Val, " "))))
		}
	}
	return out
}

func newPod(name, app, addr string) model.Pod {
	return model.Pod{
		Namespace: "shop", Name: name, UID: "u-" + name, Node: "n2", Labels: map[string]string{"app": app},
		IPs: []netip.Addr{netip.MustParseAddr(addr)},
	}
}

// What changes is what was touched: a peer is elements of sets, a pod an element of the maps, a block an element of its
// set.
func TestChanges(t *testing.T) {
	x := worldOf(t, "testdata/networkpolicy.yaml")
	if first := x.Changes(); len(first) != 1 || len(first[0].AddChains) == 0 || len(first[0].AddElements) > 0 {
		t.Fatalf("the first change makes the table: %s", brief(first))
	}
	p := newPod("far2", "web", "10.0.2.9")
	for _, c := range []struct {
		what string
		do   func()
		want string
	}{
		{"nothing", func() {}, ""},
		{"the same again", func() { x.SetPod(p); x.DelPod("shop", "far2") }, ""},
		{"a peer", func() { x.SetPod(p) }, "+pods4 10.0.2.9"},
		{"its labels", func() { x.SetPod(newPod("far2", "db", "10.0.2.9")) }, "-pods4 10.0.2.9; +pods4 10.0.2.9"},
		{"it finishes", func() { q := newPod("far2", "db", "10.0.2.9"); q.Phase = "Failed"; x.SetPod(q) }, "-pods4 10.0.2.9"},
		{"it is published before its status says so", func() {
			x.SetPod(newPod("far3", "db", "10.0.2.9"))
			x.SetEndpoint(model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: "shop", Name: "far3", UID: "u-far3"}, Node: "n2", IfName: "eth0", Addrs: p.IPs,
			})
		}, "+pods4 10.0.2.9"},
		{"another node says something of it", func() {
			x.SetEndpoint(model.WorkloadEndpoint{
				Pod: model.PodRef{Namespace: "shop", Name: "far3", UID: "u-far3"}, Node: "n3", IfName: "eth0",
				Addrs: []netip.Addr{netip.MustParseAddr("10.0.3.3")},
			})
		}, ""},
		{"and takes it back", func() {
			x.DelEndpoint(model.EndpointKey{Namespace: "shop", Pod: "far3", UID: "u-far3", IfName: "eth0", Node: "n3"})
		}, ""},
		{"the status goes", func() { q := newPod("far3", "db", "10.0.2.9"); q.IPs = nil; x.SetPod(q) }, ""},
		{
			"another one of its name", func() { q := newPod("far3", "db", "10.0.2.9"); q.UID, q.IPs = "new", nil; x.SetPod(q) },
			"-pods4 10.0.2.9",
		},
		{
			"an interface here", func() {
				near := newPod("near", "web", "10.0.1.9")
				near.Node = "n1"
				x.SetPod(near)
				x.SetEndpoint(model.WorkloadEndpoint{
					Pod: model.PodRef{Namespace: "shop", Name: "near", UID: "u-near"}, Node: "n1", IfName: "eth0",
					HostLink: "cali-near", Addrs: []netip.Addr{netip.MustParseAddr("10.0.1.9")}, HostEnd: model.HostEndRouted,
				})
			},
			`+pods4 10.0.1.9; +ingress "cali-near" goto pods/ca33bbdf3d0f4314/in; +egress "cali-near" goto pods/9c1180c76c2878b8/out`,
		},
		{
			"a namespace's labels", func() { x.SetNamespace(model.Namespace{Name: "other"}) },
			"-named4 10.0.1.3 . udp . 5353; -pods4 10.0.1.3",
		},
	} {
		c.do()
		if got := brief(x.Changes()); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, c.want)
		}
	}
}

func blocks(cidrs ...string) model.Policy {
	r := model.PolicyRule{Action: model.PolicyAccept, AnyPort: true}
	for _, c := range cidrs {
		r.Peers = append(r.Peers, model.PolicyPeer{Block: &model.IPBlock{CIDR: netip.MustParsePrefix(c)}})
	}
	return model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "blocks"},
		Subject:   model.PodPeer{Namespace: "shop"},
		Ingress:   model.PolicyDirection{On: true, Rules: []model.PolicyRule{r}},
	}
}

func TestOneMoreBlock(t *testing.T) {
	x := worldOf(t, "testdata/networkpolicy.yaml")
	x.SetPolicy(blocks("10.0.0.0/24", "10.1.0.0/24"))
	x.Changes()
	x.SetPolicy(blocks("10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24"))
	if got := brief(x.Changes()); got != "+block4 10.2.0.0/24" {
		t.Error(got)
	}
	x.SetPolicy(blocks("10.0.0.0/24", "10.1.0.0/24", "10.1.1.0/24")) // it touches one: they are one range
	if got := brief(x.Changes()); got != "-block4 10.1.0.0/24; -block4 10.2.0.0/24; +block4 10.1.0.0/23" {
		t.Error(got)
	}
}

// A pod of which nothing is known is closed as soon as some policy could select it, and opened by what is known.
func TestUnknownPodIsClosed(t *testing.T) {
	x := policy.New(policy.Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "shop"})
	e := model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "shop", Name: "late", UID: "u-late"}, Node: "n1", IfName: "eth0", HostLink: "cali-late",
		HostEnd: model.HostEndRouted,
	}
	x.SetEndpoint(e)
	if got := brief(x.Changes()); got != "" {
		t.Errorf("without a policy: %s", got)
	}
	p := blocks("10.0.0.0/24")
	p.Subject.Pods = model.Selector{Labels: map[string]string{"app": "db"}}
	x.SetPolicy(p)
	if got := x.Changes(); len(got) != 1 || got[0].AddSets[0].Elements[0].Val[0] != "goto deny/unknown/in" {
		t.Errorf("with a policy: %s", brief(got))
	}
	x.SetPod(newPod("late", "web", "10.0.0.1"))
	if got := brief(x.Changes()); got != "gone" {
		t.Errorf("with the pod: %s", got)
	}
	again := newPod("late", "web", "10.0.0.2")
	again.UID = "another"
	x.SetPod(again)
	if got := x.Changes(); len(got) != 1 || got[0].AddSets[0].Elements[0].Val[0] != "goto deny/unknown/in" {
		t.Errorf("with another pod of the name: %s", brief(got))
	}
	e.Pod.UID = "another"
	e.HostLink = "cali-other"
	x.SetEndpoint(e)
	if got := x.Changes(); len(got) != 0 {
		t.Errorf("the other pod's interface is not closed: %s", brief(got))
	}
}

// A pod whose namespace is not known yet is closed where a policy may select it by the namespace's labels, but not by
// its name.
func TestUnknownNamespaceIsClosed(t *testing.T) {
	for _, c := range []struct {
		subject model.Selector
		want    string
	}{
		{model.Selector{}, "goto pods/"},
		{model.Selector{Labels: map[string]string{"kubernetes.io/metadata.name": "shop"}}, "goto pods/"},
		{model.Selector{Labels: map[string]string{"kubernetes.io/metadata.name": "other"}}, ""},
		{model.Selector{Labels: map[string]string{"team": "a"}}, "goto deny/unknown/in"},
	} {
		x := policy.New(policy.Config{Node: "n1"})
		x.SetPod(newPod("new", "web", "10.0.0.1"))
		x.SetEndpoint(model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: "shop", Name: "new", UID: "u-new"}, Node: "n1", IfName: "eth0", HostLink: "cali-new",
			HostEnd: model.HostEndRouted,
		})
		p := blocks("10.0.0.0/24")
		p.PolicyKey, p.Tier = model.PolicyKey{Kind: model.KindClusterNetworkPolicy, Name: "c"}, model.TierAdmin
		p.Subject = model.PodPeer{Namespaces: c.subject}
		x.SetPolicy(p)
		got := ""
		if changes := x.Changes(); len(changes) > 0 {
			got = changes[0].AddSets[0].Elements[0].Val[0]
		}
		if !strings.HasPrefix(got, c.want) || got != "" && c.want == "" {
			t.Errorf("%v: %q, want %q", c.subject, got, c.want)
		}
		x.SetNamespace(model.Namespace{Name: "shop"})
		if left := brief(x.Changes()); c.want == "goto deny/unknown/in" && left != "gone" {
			t.Errorf("%v: once it is known: %s", c.subject, left)
		}
	}
}

// TestCut: replies that are dropped are sets that exist only while there are some. A rule lets those pass again that a
// packet in the other direction shows to be allowed, except at ports.
func TestCut(t *testing.T) {
	x := worldOf(t, "testdata/networkpolicy.yaml")
	x.Changes()
	f := policy.Flow{
		Src: netip.MustParseAddr("10.0.2.1"), Dst: netip.MustParseAddr("10.0.1.2"), Protocol: model.TCP, SrcPort: 4000,
		DstPort: 5432,
	}
	g := f
	g.SrcPort++
	x.DropReplies(policy.EnforcementPoint{}, f)
	if got := brief(x.Changes()); got != "set cut4; set resumed4; chain cut; chain cut-output; chain resume; chain resume-input" {
		t.Error(got)
	}
	x.DropReplies(policy.EnforcementPoint{}, g)
	if got := brief(x.Changes()); got != "+cut4 10.0.1.2 . 10.0.2.1 . tcp . 5432 . 4001" {
		t.Error(got)
	}
	x.UndropReplies(policy.EnforcementPoint{}, f)
	x.UndropReplies(policy.EnforcementPoint{}, g)
	if got := brief(x.Changes()); got != "no cut; no cut-output; no resume; no resume-input; no cut4; no resumed4" {
		t.Error(got)
	}
	at := policy.EnforcementPoint{Ports: true}
	x.DropReplies(at, f)
	if got := brief(x.Changes()); got != "set cut4/held; chain cut; chain cut-output" {
		t.Error(got)
	}
	x.UndropReplies(policy.EnforcementPoint{}, f)
	x.UndropReplies(at, f)
	if got := brief(x.Changes()); got != "no cut; no cut-output; no cut4/held" {
		t.Error(got)
	}
}

// TestPodOfManyInterfaces: a pod with more networks than a byte counts is this node's all the same, and its policies
// follow its labels.
func TestPodOfManyInterfaces(t *testing.T) {
	x := policy.New(policy.Config{Node: "n1"})
	x.SetNamespace(model.Namespace{Name: "shop"})
	pod := newPod("many", "web", "10.0.0.1")
	x.SetPod(pod)
	for i := range 256 {
		x.SetEndpoint(model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: "shop", Name: "many", UID: pod.UID}, Node: "n1", IfName: fmt.Sprintf("net%d", i),
			HostLink: fmt.Sprintf("cali-%d", i), HostEnd: model.HostEndRouted,
		})
	}
	p := blocks("10.0.0.0/24")
	p.Subject.Pods = model.Selector{Labels: map[string]string{"app": "db"}}
	x.SetPolicy(p)
	for _, app := range []string{"web", "db"} {
		pod.Labels = map[string]string{"app": app}
		x.SetPod(pod)
		x.Changes()
		v, err := x.Show(model.PodRef{Namespace: "shop", Name: "many"})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range v.Interfaces {
			if one.Ingress.Isolated != (app == "db") {
				t.Fatalf("app %s: isolated is %t at %s", app, one.Ingress.Isolated, one.IfName)
			}
		}
	}
}
