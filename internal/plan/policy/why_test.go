// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

func party(s string) policy.ConnectionEnd {
	if a, err := netip.ParseAddr(s); err == nil {
		return policy.ConnectionEnd{Addr: a}
	}
	ns, name, _ := strings.Cut(s, "/")
	return policy.ConnectionEnd{Pod: model.PodRef{Namespace: ns, Name: name}}
}

// said is an answer in one line for each side: which tier decided, by which rule, in which set.
func said(a policy.Answer) string {
	var out []string
	for _, s := range a.Sides {
		verdict := map[bool]string{true: "allowed", false: "denied"}[s.Allowed]
		where := map[bool]string{true: "", false: " elsewhere"}[s.Local]
		var who []string
		for _, k := range s.Decided {
			who = append(who, k.String())
		}
		set, _, _ := strings.Cut(s.Set, "/")
		out = append(
			out,
			strings.TrimSpace(
				fmt.Sprintf("%s%s %s by [%s] rule %d %s %s", s.Direction, where, verdict, strings.Join(who, ", "), s.Rule,
					set, s.Element),
			),
		)
	}
	return strings.Join(out, "; ")
}

func TestWhy(t *testing.T) {
	for _, c := range []struct{ file, from, to, port, want string }{
		{
			"networkpolicy", "shop/far", "shop/db", "TCP/5432",
			"egress elsewhere allowed by [NetworkPolicy shop/web] rule 1 pods4 10.0.1.2; ingress allowed by [NetworkPolicy shop/db] rule 0 pods4 10.0.2.1",
		},
		{
			"networkpolicy", "shop/web", "shop/db", "TCP/80",
			"egress allowed by [NetworkPolicy shop/web] rule 1 pods4 10.0.1.2; ingress denied by [NetworkPolicy shop/db, NetworkPolicy shop/isolate] rule -1",
		},
		{
			"networkpolicy", "other/free", "shop/web", "TCP/8080",
			"egress allowed by [] rule -1; ingress allowed by [NetworkPolicy shop/web] rule 0 named4 10.0.1.1 . tcp . 8080",
		},
		{
			"networkpolicy", "other/free", "shop/web", "TCP/http",
			"egress allowed by [] rule -1; ingress allowed by [NetworkPolicy shop/web] rule 0 named4 10.0.1.1 . tcp . 8080",
		},
		{
			"networkpolicy", "other/free", "shop/web", "/http",
			"egress allowed by [] rule -1; ingress allowed by [NetworkPolicy shop/web] rule 0 named4 10.0.1.1 . tcp . 8080",
		},
		{
			"networkpolicy", "172.16.2.9", "shop/web", "TCP/9005",
			"ingress allowed by [NetworkPolicy shop/web] rule 1 block4 172.16.2.0-172.31.255.255",
		},
		{
			"networkpolicy", "172.16.1.9", "shop/web", "TCP/9005",
			"ingress denied by [NetworkPolicy shop/isolate, NetworkPolicy shop/web] rule -1",
		},
		{
			"networkpolicy", "172.16.1.128", "shop/web", "SCTP/7",
			"ingress allowed by [NetworkPolicy shop/web] rule 1 block4 172.16.1.128",
		},
		{
			"networkpolicy", "2001:db8::7", "shop/web", "TCP/8443",
			"ingress allowed by [NetworkPolicy shop/web] rule 1  2001:db8::/32",
		},
		{"networkpolicy", "192.168.0.1", "shop/web", "TCP/1", "ingress allowed by [] rule -1"},
		{"networkpolicy", "shop/web", "8.8.8.8", "", "egress denied by [NetworkPolicy shop/web] rule -1"},
		{"networkpolicy", "shop/web", "10.100.0.1", "", "egress allowed by [NetworkPolicy shop/web] rule 1  10.96.0.0/12"},
		{
			"networkpolicy", "shop/far", "other/free", "UDP/5353",
			"egress elsewhere allowed by [NetworkPolicy shop/web] rule 0 named4 10.0.1.3 . udp . 5353; ingress allowed by [] rule -1",
		},
		{
			"tiers", "a/two", "a/one", "TCP/23",
			"egress allowed by [] rule -1; ingress allowed by [NetworkPolicy a/one] rule 0 pods4 10.0.1.2",
		},
		{
			"tiers", "a/one", "a/two", "TCP/23",
			"egress allowed by [] rule -1; ingress denied by [ClusterNetworkPolicy second] rule 0 pods4 10.0.1.1",
		},
		{
			"tiers", "a/one", "a/two", "TCP/24",
			"egress allowed by [] rule -1; ingress denied by [ClusterNetworkPolicy base] rule 0 pods4 10.0.1.1",
		},
		{
			"tiers", "a/two", "192.168.0.1", "TCP/6443",
			"egress denied by [ClusterNetworkPolicy second] rule 0 nodes4 192.168.0.1",
		},
	} {
		q := policy.Query{From: party(c.from), To: party(c.to)}
		if protocol, port, ok := strings.Cut(c.port, "/"); ok {
			q.Protocol = model.Protocol(protocol)
			if _, err := fmt.Sscan(port, &q.Port); err != nil {
				q.PortName = port
			}
		}
		x := worldOf(t, "testdata/"+c.file+".yaml")
		x.Changes()
		answers, err := x.Why(q)
		if err != nil {
			t.Errorf("%s to %s %s: %v", c.from, c.to, c.port, err)
			continue
		}
		if got := said(answers[0]); got != c.want {
			t.Errorf("%s to %s %s:\ngot  %s\nwant %s", c.from, c.to, c.port, got, c.want)
		}
		if left := x.Changes(); len(left) > 0 {
			t.Errorf("%s to %s: asking has changed something: %+v", c.from, c.to, left)
		}
	}
}

func TestWhyNot(t *testing.T) {
	x := worldOf(t, "testdata/networkpolicy.yaml")
	for _, c := range []struct{ from, to, want string }{
		{"shop/none", "shop/web", "pod shop/none is not known (run kubectl get pods -A)"},
		{
			"shop/web", "shop/done",
			"pod shop/done has no address that policies see (it has none yet, has finished, or uses its node's network)",
		},
		{"other/free", "fd00::1", "pod other/free and fd00::1 have no addresses of one family"},
	} {
		if _, err := x.Why(policy.Query{From: party(c.from), To: party(c.to)}); err == nil || err.Error() != c.want {
			t.Errorf("%s to %s: %v, want %s", c.from, c.to, err, c.want)
		}
	}
	for _, c := range []struct{ to, port, want string }{
		{"shop/web", "ftp", `pod shop/web has no port "ftp" (it has http/tcp)`},
		{"shop/db", "ftp", `pod shop/db has no port "ftp" (give its number)`},
		{
			"10.0.1.1", "http",
			`port "http": only pods have named ports, and 10.0.1.1 is an address (give its number, or name the pod)`,
		},
	} {
		if _, err := x.Why(policy.Query{From: party("other/free"), To: party(c.to), PortName: c.port}); err == nil ||
			err.Error() != c.want {
			t.Errorf("%s:%s: %v, want %s", c.to, c.port, err, c.want)
		}
	}
	if _, err := x.Show(model.PodRef{Namespace: "shop", Name: "none"}); err == nil ||
		err.Error() != "pod shop/none is not known (run kubectl get pods -A)" {
		t.Error(err)
	}
}

func TestShow(t *testing.T) {
	x := worldOf(t, "testdata/networkpolicy.yaml")
	v, err := x.Show(model.PodRef{Namespace: "shop", Name: "db"})
	if err != nil || !v.Local || len(v.Interfaces) != 1 {
		t.Fatalf("%+v %v", v, err)
	}
	in := v.Interfaces[0].Ingress
	if !in.Isolated || fmt.Sprint(in.Selected) != "[NetworkPolicy shop/db NetworkPolicy shop/isolate]" ||
		v.Interfaces[0].Egress.Isolated {
		t.Errorf("%+v", v.Interfaces[0])
	}
	if len(in.Rules) != 2 || in.Rules[0].Text != "tcp dport 5432 ip saddr @pods4/259ce668bbb4c5c8 accept" ||
		in.Rules[0].Sets["pods4/259ce668bbb4c5c8"] != 2 {
		t.Errorf("%+v", in.Rules)
	}
	if v, err = x.Show(model.PodRef{Namespace: "shop", Name: "far"}); err != nil || v.Local || len(v.Interfaces) != 1 ||
		!v.Interfaces[0].Egress.Isolated {
		t.Errorf("%+v %v", v, err)
	}
	if v, err = worldOf(t, "testdata/pod.yaml").Show(model.PodRef{Namespace: "a", Name: "one"}); err != nil ||
		len(v.Interfaces) != 2 || v.Interfaces[0].Ingress.Isolated || !v.Interfaces[1].Ingress.Isolated {
		t.Errorf("%+v %v", v, err)
	}
}

// Denied packets are counted by chain, which shows their policy.
func TestDenials(t *testing.T) {
	x := worldOf(t, "testdata/tiers.yaml")
	got := x.Denials(policy.EnforcementPoint{})
	for chain, want := range map[string]string{
		"deny/np/a/one/in": "NetworkPolicy a/one ingress", "deny/cnp/second/out": "ClusterNetworkPolicy second egress",
		"deny/cnp/base/in": "ClusterNetworkPolicy base ingress",
	} {
		if got[chain].String() != want {
			t.Errorf("%s: %q, want %q", chain, got[chain], want)
		}
	}
}
