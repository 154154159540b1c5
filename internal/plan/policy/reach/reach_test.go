// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/plan/policy/reach"
)

func pod(namespace, name, addr string, labels map[string]string) model.Pod {
	return model.Pod{
		Namespace: namespace, Name: name, UID: "uid-" + name, Phase: "Running", IPs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels,
	}
}

// networkPolicy lets only pods with a label app connect to those of a namespace with another one, at a port.
func networkPolicy(namespace, to, from string, port uint16) model.Policy {
	app := func(name string) model.Selector { return model.Selector{Labels: map[string]string{"app": name}} }
	return model.Policy{
		PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: "to-" + to},
		Subject:   model.PodPeer{Namespace: namespace, Pods: app(to)},
		Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
			Action: model.PolicyAccept, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{Namespace: namespace, Pods: app(from)}}},
			Ports: []model.PolicyPort{{Protocol: model.TCP, First: port, Last: port}},
		}}},
	}
}

// text returns all connections, a line each.
func text(t *testing.T, r *reach.Reach) string {
	t.Helper()
	name := func(g *reach.Group) string {
		if g.Outside {
			return "outside"
		}
		return fmt.Sprintf("%s/%s(%d)", g.Namespace, strings.Join(g.Labels, ","), len(g.Pods))
	}
	var out strings.Builder
	for _, from := range r.Groups {
		for _, to := range r.Groups {
			if c, ok := r.Connection(from, to); ok {
				fmt.Fprintf(&out, "%s > %s: %s %s\n", name(from), name(to), c.Verdict, strings.Join(c.Ports, ", "))
			}
		}
	}
	return out.String()
}

func TestReach(t *testing.T) {
	in := reach.Input{
		Namespaces: []model.Namespace{{Name: "shop"}, {Name: "lab"}},
		Policies:   []model.Policy{networkPolicy("shop", "db", "web", 5432)},
		Pods: []model.Pod{
			pod("shop", "web-1", "10.0.0.1", map[string]string{"app": "web", "hash": "1"}),
			pod("shop", "web-2", "10.0.0.2", map[string]string{"app": "web", "hash": "2"}),
			pod("shop", "db", "10.0.0.3", map[string]string{"app": "db"}),
			pod("lab", "a", "10.0.0.4", map[string]string{"app": "db"}), pod("lab", "b", "10.0.0.5", nil),
			{Namespace: "lab", Name: "host", HostNetwork: true, IPs: []netip.Addr{netip.MustParseAddr("172.18.0.1")}},
			{Namespace: "lab", Name: "pending"},
		},
	}
	want := `lab/(2) > lab/(2): all 
lab/(2) > shop/app=db(1): none 
lab/(2) > shop/app=web(2): all 
lab/(2) > outside: all 
shop/app=db(1) > lab/(2): all 
shop/app=db(1) > shop/app=web(2): all 
shop/app=db(1) > outside: all 
shop/app=web(2) > lab/(2): all 
shop/app=web(2) > shop/app=db(1): some 5432/tcp
shop/app=web(2) > shop/app=web(2): all 
shop/app=web(2) > outside: all 
outside > lab/(2): all 
outside > shop/app=db(1): none 
outside > shop/app=web(2): all 
`
	if got := text(t, reach.New(in)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// On a further network only its own policies apply, to the pods that have an address there. Pods of two nodes have the same
// address, and differ in what they may; an endpoint of an earlier pod, and one that stands by, do not count.
func TestFurtherNetwork(t *testing.T) {
	multi := networkPolicy("shop", "db", "web", 5432)
	multi.Kind, multi.Networks = model.KindMultiNetworkPolicy, []string{"shop/storage", "shop/other"}
	other := networkPolicy("shop", "web", "db", 1)
	other.Kind, other.Networks = model.KindMultiNetworkPolicy, []string{"shop/other"}
	in := reach.Input{
		Namespaces: []model.Namespace{{Name: "shop"}}, Policies: []model.Policy{multi, other, networkPolicy("shop", "web", "db", 1)},
		Pods: []model.Pod{
			pod("shop", "web", "10.0.0.1", map[string]string{"app": "web"}), pod("shop", "db", "10.0.0.2", map[string]string{"app": "db"}),
			pod("shop", "db-2", "10.0.0.3", map[string]string{"app": "db"}), pod("shop", "none", "10.0.0.4", nil), pod("shop", "moves", "10.0.0.5", nil),
		},
	}
	for _, e := range []struct{ name, uid, network, addr string }{
		{"web", "uid-web", "shop/storage", "172.16.0.1"}, {"db", "uid-db", "shop/storage", "172.16.0.2"},
		{"db-2", "uid-db-2", "shop/storage", "172.16.0.1"}, // of another node
		{"web", "uid-web", "", "10.0.0.1"}, {"none", "uid-earlier", "shop/storage", "172.16.0.4"}, {"moves", "standby", "shop/storage", "172.16.0.5"},
	} {
		in.Endpoints = append(in.Endpoints, model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: "shop", Name: e.name, UID: e.uid}, Network: e.network, IfName: "net1", Standby: e.uid == "standby",
			Addrs: []netip.Addr{netip.MustParseAddr(e.addr)},
		})
	}
	for network, want := range map[string]string{
		"shop/storage": `shop/app=db(2) > shop/app=db(2): none 
shop/app=db(2) > shop/app=web(1): all 
shop/app=db(2) > outside: all 
shop/app=web(1) > shop/app=db(2): some 5432/tcp
shop/app=web(1) > outside: all 
outside > shop/app=db(2): none 
outside > shop/app=web(1): all 
`,
		"shop/other": "",
	} {
		in.Network = network
		if got := text(t, reach.New(in)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", network, got, want)
		}
	}
}

// Ranges of ports, a named port that differs by pod, a block that divides pods with the same labels, and other protocols.
func TestPorts(t *testing.T) {
	p := networkPolicy("shop", "db", "web", 0)
	p.Ingress.Rules = []model.PolicyRule{
		{Action: model.PolicyAccept, AnyPeer: true, Ports: []model.PolicyPort{
			{Protocol: model.TCP, First: 8000, Last: 8010}, {Protocol: model.TCP, First: 8011, Last: 8011}, {Name: "metrics"}, {Protocol: model.SCTP},
		}},
		{Action: model.PolicyAccept, AnyPort: true, Peers: []model.PolicyPeer{{Block: &model.IPBlock{
			CIDR: netip.MustParsePrefix("10.0.1.0/24"), Except: []netip.Prefix{netip.MustParsePrefix("10.0.1.1/32")},
		}}}},
	}
	db := func(name, addr string, metrics uint16) model.Pod {
		d := pod("shop", name, addr, map[string]string{"app": "db"})
		d.Ports = []model.PodPort{{Name: "metrics", Protocol: model.UDP, Number: metrics}, {Name: "other", Protocol: model.TCP, Number: 1}}
		return d
	}
	r := reach.New(reach.Input{
		Namespaces: []model.Namespace{{Name: "shop"}}, Policies: []model.Policy{p},
		Pods: []model.Pod{
			db("db1", "10.0.0.1", 9090), db("db2", "10.0.0.2", 9091),
			pod("shop", "web1", "10.0.1.1", nil), pod("shop", "web2", "10.0.1.2", nil), pod("shop", "web3", "10.0.1.3", nil),
		},
	})
	got := map[string]string{}
	for _, from := range r.Groups {
		for _, to := range r.Groups {
			if c, ok := r.Connection(from, to); ok {
				got[strings.Join(from.Pods, "+")+" "+strings.Join(to.Pods, "+")] = string(c.Verdict) + " " + strings.Join(c.Ports, ", ")
			}
		}
	}
	for pair, want := range map[string]string{
		"web1 db1": "some 8000-8011/tcp, 9090/udp, all of sctp", "web1 db2": "some 8000-8011/tcp, 9091/udp, all of sctp",
		"web2+web3 db1": "all ", "db1 db2": "some 8000-8011/tcp, 9091/udp, all of sctp", "web1 web2+web3": "all ",
		" db1": "some 8000-8011/tcp, 9090/udp, all of sctp",
	} {
		if got[pair] != want {
			t.Errorf("%s: %q, want %q", pair, got[pair], want)
		}
	}
}

// Whatever the policies: what a group may is what the index of an agent answers for each of its pods.
func TestAgreesWithIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawCluster(t)
		r := reach.New(in)
		index := policy.New(policy.Config{Node: "remote"})
		for _, n := range in.Namespaces {
			index.SetNamespace(n)
		}
		for _, p := range in.Policies {
			index.SetPolicy(p)
		}
		for _, p := range in.Pods {
			index.SetPod(p)
		}
		for _, tier := range in.Tiers {
			index.Calico().SetTier(tier)
		}
		for _, set := range in.Sets {
			index.Calico().SetNetworkSet(set)
		}
		for _, a := range in.Accounts {
			index.Calico().SetServiceAccount(a)
		}
		for _, from := range r.Groups {
			for _, to := range r.Groups {
				c, ok := r.Connection(from, to)
				if !ok || from.Outside || to.Outside {
					continue
				}
				for _, a := range from.Pods {
					for _, b := range to.Pods {
						if from == to && a == b {
							continue
						}
						for _, port := range []uint16{0, 1, 53, 79, 80, 81, 90, 91, 8080, 65535} {
							q := policy.Query{
								From: policy.ConnectionEnd{Pod: model.PodRef{Namespace: from.Namespace, Name: a}},
								To:   policy.ConnectionEnd{Pod: model.PodRef{Namespace: to.Namespace, Name: b}},
								Port: port, Protocol: model.TCP,
							}
							if port == 0 {
								q.Protocol = ""
							}
							answers, err := index.Why(q)
							if err != nil {
								t.Fatal(err)
							}
							if got := allows(t, c, q.Protocol, port); got != answers[0].Allowed {
								t.Fatalf("%s/%s to %s/%s port %d: %v by %+v, the index answers %v", from.Namespace, a, to.Namespace, b, port,
									got, c, answers[0].Allowed)
							}
						}
					}
				}
			}
		}
	})
}

// allows reports whether a connection has a port.
func allows(t *rapid.T, c reach.Connection, protocol model.Protocol, port uint16) bool {
	if c.Verdict != reach.Some {
		return c.Verdict == reach.All
	}
	return slices.ContainsFunc(c.Ports, func(text string) bool {
		if protocol == "" {
			return text == "protocols without ports"
		}
		if text == "all of tcp" {
			return true
		}
		numbers, of, _ := strings.Cut(text, "/")
		if of != "tcp" {
			return false
		}
		first, last, isRange := strings.Cut(numbers, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			t.Fatal(err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			t.Fatal(err)
		}
		return int(port) >= from && int(port) <= to
	})
}

func drawCluster(t *rapid.T) reach.Input {
	namespaces := []string{"x", "y"}
	values := rapid.SampledFrom([]string{"", "a", "b"})
	labels := func(t *rapid.T) map[string]string {
		out := map[string]string{}
		for _, k := range []string{"app", "tier"} {
			if v := values.Draw(t, k); v != "" {
				out[k] = v
			}
		}
		return out
	}
	selector := func(t *rapid.T) model.Selector {
		s := model.Selector{Labels: labels(t)}
		if rapid.IntRange(0, 3).Draw(t, "requirement") == 0 {
			s.Requirements = []model.SelectorRequirement{{
				Key: "tier", Op: rapid.SampledFrom([]model.SelectorOp{
					model.SelectIn, model.SelectNotIn, model.SelectExists, model.SelectDoesNotExist,
				}).Draw(t, "operator"), Values: []string{"a"},
			}}
		}
		return s
	}
	rule := rapid.Custom(func(t *rapid.T) model.PolicyRule {
		r := model.PolicyRule{Action: model.PolicyAccept, AnyPeer: rapid.Bool().Draw(t, "any peer"), AnyPort: rapid.Bool().Draw(t, "any port")}
		if !r.AnyPeer {
			peer := model.PolicyPeer{Pods: &model.PodPeer{Namespaces: selector(t), Pods: selector(t)}}
			if rapid.IntRange(0, 3).Draw(t, "block") == 0 {
				peer = model.PolicyPeer{Block: &model.IPBlock{CIDR: netip.MustParsePrefix(
					rapid.SampledFrom([]string{"10.0.0.0/30", "10.0.0.2/32", "0.0.0.0/0"}).Draw(t, "cidr"))}}
			}
			r.Peers = []model.PolicyPeer{peer}
		}
		if !r.AnyPort {
			r.Ports = []model.PolicyPort{rapid.SampledFrom([]model.PolicyPort{
				{Protocol: model.TCP, First: 80, Last: 80}, {Protocol: model.TCP, First: 80, Last: 90}, {Protocol: model.TCP}, {Name: "web"},
				{Protocol: model.UDP, First: 53, Last: 53},
			}).Draw(t, "port")}
		}
		return r
	})
	in := reach.Input{Namespaces: []model.Namespace{{Name: "x", Labels: labels(t)}, {Name: "y", Labels: labels(t)}}}
	for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
		p := model.Policy{PolicyKey: model.PolicyKey{
			Kind: model.KindNetworkPolicy, Namespace: rapid.SampledFrom(namespaces).Draw(t, "namespace"), Name: fmt.Sprint("p", i),
		}}
		p.Subject = model.PodPeer{Namespace: p.Namespace, Pods: selector(t)}
		cluster := rapid.IntRange(0, 2).Draw(t, "cluster") == 0
		if cluster {
			p.PolicyKey, p.Tier = model.PolicyKey{Kind: model.KindClusterNetworkPolicy, Name: p.Name}, model.TierAdmin
			p.Subject = model.PodPeer{Namespaces: selector(t), Pods: selector(t)}
		}
		for _, d := range []*model.PolicyDirection{&p.Ingress, &p.Egress} {
			d.On = rapid.Bool().Draw(t, "on")
			if d.On {
				d.Rules = rapid.SliceOfN(rule, 0, 2).Draw(t, "rules")
			}
			for j := range d.Rules {
				if cluster {
					d.Rules[j].Action = rapid.SampledFrom([]model.PolicyAction{model.PolicyAccept, model.PolicyDeny, model.PolicyPass}).Draw(t, "action")
				}
			}
		}
		in.Policies = append(in.Policies, p)
	}
	if rapid.Bool().Draw(t, "calico") {
		drawCalico(t, &in, namespaces)
	}
	for i := range rapid.IntRange(2, 8).Draw(t, "pods") {
		p := pod(rapid.SampledFrom(namespaces).Draw(t, "namespace of pod"), fmt.Sprint("pod", i), fmt.Sprint("10.0.0.", i), labels(t))
		p.ServiceAccount = rapid.SampledFrom([]string{"", "s1", "s2"}).Draw(t, "account")
		if rapid.Bool().Draw(t, "named port") {
			p.Ports = []model.PodPort{{Name: "web", Protocol: model.TCP, Number: rapid.SampledFrom([]uint16{80, 8080}).Draw(t, "web")}}
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}

// drawCalico adds Calico's policies, and what they use.
func drawCalico(t *rapid.T, in *reach.Input, namespaces []string) {
	expression := func() model.Expression {
		e, err := model.ParseExpression(rapid.SampledFrom([]string{
			"", `app == "a"`, `app != "a" && has(tier)`, `pcns.app == "a"`, `pcsa.app == "a"`, `projectcalico.org/serviceaccount == "s1"`,
			`!(projectcalico.org/namespace == "x" || tier == "b")`, `set == "1"`,
		}).Draw(t, "expression"))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	end := func(protocol model.Protocol) (e model.EndConditions) {
		switch rapid.IntRange(0, 4).Draw(t, "end") {
		case 0:
			e.Peer = &model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression()}}
		case 1:
			e.NotPeer = &model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression()}}
		case 2:
			e.NotNets = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/30")}
		}
		if protocol != "" && rapid.Bool().Draw(t, "ports") {
			e.Ports = []model.PolicyPort{rapid.SampledFrom([]model.PolicyPort{
				{Protocol: protocol, First: 80, Last: 80}, {Protocol: protocol, First: 1024, Last: 65535}, {Protocol: protocol, Name: "web"},
			}).Draw(t, "port")}
			e.NotPorts = []model.PolicyPort{{Protocol: protocol, First: 90, Last: 91}}
		}
		return e
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "Calico policies") {
		p := model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint("g", i)},
			Tier:      rapid.SampledFrom([]model.PolicyTier{model.TierDefault, "first"}).Draw(t, "tier"),
			Subject:   model.PodPeer{Endpoints: &model.EndpointSelector{Labels: expression()}},
		}
		if rapid.Bool().Draw(t, "of a namespace") {
			p.Kind, p.Namespace = model.KindCalicoNetworkPolicy, rapid.SampledFrom(namespaces).Draw(t, "namespace")
			p.Subject.Namespace = p.Namespace
		}
		for _, d := range []*model.PolicyDirection{&p.Ingress, &p.Egress} {
			d.On = rapid.Bool().Draw(t, "on")
			for range rapid.IntRange(0, 2).Draw(t, "rules") {
				c := &model.RuleConditions{}
				protocol := rapid.SampledFrom([]model.Protocol{"", model.TCP}).Draw(t, "protocol")
				if protocol != "" {
					c.Protocol = model.NumberTCP
				}
				c.Source, c.Destination = end(protocol), end(protocol)
				d.Rules = append(d.Rules, model.PolicyRule{Conditions: c, Action: rapid.SampledFrom([]model.PolicyAction{
					model.PolicyAccept, model.PolicyDeny, model.PolicyPass,
				}).Draw(t, "action")})
			}
		}
		in.Policies = append(in.Policies, p)
	}
	in.SetTier(model.Tier{Name: "first", Order: new(1.0), Pass: rapid.Bool().Draw(t, "pass")})
	in.SetNetworkSet(model.NetworkSet{
		Name: "s", Labels: map[string]string{"set": "1"}, Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.4/30")},
	})
	in.SetServiceAccount(model.ServiceAccount{Namespace: "x", Name: "s1", Labels: map[string]string{"app": "a"}})
}

func BenchmarkReach(b *testing.B) {
	in := reach.Input{}
	for n := range 40 {
		namespace := fmt.Sprint("team", n)
		in.Namespaces = append(in.Namespaces, model.Namespace{Name: namespace})
		in.Policies = append(in.Policies, networkPolicy(namespace, "db", "api", 5432), networkPolicy(namespace, "api", "web", 8080))
		for i := range 500 {
			addr := netip.AddrFrom4([4]byte{10, byte(n), byte(i >> 8), byte(i)}).String()
			in.Pods = append(in.Pods, pod(namespace, fmt.Sprint("pod", i), addr, map[string]string{"app": []string{"web", "api", "db"}[i%3]}))
		}
	}
	for b.Loop() {
		r := reach.New(in)
		for _, from := range r.Groups {
			for _, to := range r.Groups {
				r.Connection(from, to)
			}
		}
	}
}
