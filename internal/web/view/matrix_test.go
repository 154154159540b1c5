// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/reach"
	"github.com/weft-net/weft/internal/web/view"
)

// shops returns namespaces with web and db pods, of which only web may connect to db in its own namespace.
func shops(namespaces, pods int) reach.Input {
	in := reach.Input{}
	for n := range namespaces {
		name := fmt.Sprintf("shop%02d", n)
		in.Namespaces = append(in.Namespaces, model.Namespace{Name: name})
		app := func(app string) model.Selector { return model.Selector{Labels: map[string]string{"app": app}} }
		in.Policies = append(in.Policies, model.Policy{
			PolicyKey: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: name, Name: "db"},
			Subject:   model.PodPeer{Namespace: name, Pods: app("db")},
			Ingress: model.PolicyDirection{On: true, Rules: []model.PolicyRule{{
				Action: model.PolicyAccept, Peers: []model.PolicyPeer{{Pods: &model.PodPeer{Namespace: name, Pods: app("web")}}},
				Ports: []model.PolicyPort{{Protocol: model.TCP, First: 5432, Last: 5432}},
			}}},
		})
		for i := range pods {
			in.Pods = append(in.Pods, model.Pod{
				Namespace: name, Name: fmt.Sprintf("pod%d", i), UID: fmt.Sprintf("%d-%d", n, i), IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(n), 0, byte(i)})},
				Labels: map[string]string{"app": []string{"web", "db"}[i%2]},
			})
		}
	}
	return in
}

func TestMatrix(t *testing.T) {
	r := shops(30, 6)
	m := view.NewMatrix(r, "", "", "")
	if len(m.Rows) != 21 || len(m.Cols) != 21 || m.MoreRows != 10 || m.Rows[1].Text != "6 pods, 2 groups" || m.Empty {
		t.Fatalf("%d rows, %d columns, %d more, %+v", len(m.Rows), len(m.Cols), m.MoreRows, m.Rows[0])
	}
	for at, want := range map[[2]int]view.MatrixCell{
		{1, 1}: {Verdict: "some", Text: "3 of 4 pairs"}, // db to db is denied
		{1, 2}: {Verdict: "some", Text: "2 of 4 pairs"},
		{1, 0}: {Verdict: "all"},
		{0, 1}: {Verdict: "some", Text: "1 of 2 pairs"},
		{0, 0}: {},
	} {
		if got := m.Cells[at[0]][at[1]]; got != want {
			t.Errorf("%s to %s: %+v, want %+v", m.Rows[at[0]].Name, m.Cols[at[1]].Name, got, want)
		}
	}
	if m := view.NewMatrix(r, "", "", "SHOP07"); len(m.Rows) != 2 || m.Rows[1].Namespace != "shop07" || m.MoreRows != 0 {
		t.Errorf("found %+v", m.Rows)
	}
	g := view.NewMatrix(r, "shop03", "shop03", "")
	if len(g.Rows) != 2 || g.Rows[0] != (view.MatrixEnd{Name: "app=db", Text: "pod1, pod3 and 1 more"}) {
		t.Fatalf("groups %+v", g.Rows)
	}
	if want := (view.MatrixCell{Verdict: "some", Text: "5432/tcp", FromPod: "shop03/pod0", ToPod: "shop03/pod1"}); g.Cells[1][0] != want {
		t.Errorf("web to db: %+v", g.Cells[1][0])
	}
	if want := (view.MatrixCell{Verdict: "none", FromPod: "shop03/pod1", ToPod: "shop03/pod3"}); g.Cells[0][0] != want {
		t.Errorf("db to db: %+v", g.Cells[0][0])
	}
	if o := view.NewMatrix(r, "outside of the cluster", "shop03", ""); len(o.Rows) != 1 || o.Cells[0][0].Verdict != "none" || o.Cells[0][1].Verdict != "all" {
		t.Errorf("from outside: %+v", o.Cells)
	}
	if none := view.NewMatrix(reach.Input{}, "", "", ""); !none.Empty || len(none.Rows) != 0 {
		t.Errorf("without pods: %+v", none)
	}
	if gone := view.NewMatrix(r, "no-such", "shop03", ""); len(gone.Rows) != 0 || len(gone.Cells) != 0 || gone.Empty {
		t.Errorf("a namespace without pods: %+v", gone)
	}
}

// The matrix of a further network has only the pods on it, and its policies. All networks can be chosen.
func TestMatrixOfNetwork(t *testing.T) {
	in := shops(2, 4)
	for i := range in.Policies {
		p := in.Policies[i]
		p.Kind, p.Networks = model.KindMultiNetworkPolicy, []string{p.Namespace + "/storage"}
		p.Ingress.Rules = nil
		in.Policies = append(in.Policies, p)
	}
	for i, p := range in.Pods[:2] { // of shop00
		in.Endpoints = append(in.Endpoints, model.WorkloadEndpoint{
			Pod: model.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Network: "shop00/storage", IfName: "net1",
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, byte(i)})},
		})
	}
	in.Network = "shop00/storage"
	m := view.NewMatrix(in, "", "", "")
	if want := []view.NetworkCount{{Name: "shop00/storage", Pods: 2}, {Name: "shop01/storage", Pods: 0}}; !slices.Equal(m.Networks, want) || m.Network != in.Network {
		t.Errorf("networks %v, want %v", m.Networks, want)
	}
	if len(m.Rows) != 2 || m.Rows[1].Text != "2 pods, 2 groups" || m.Cells[1][1] != (view.MatrixCell{Verdict: "some", Text: "1 of 2 pairs"}) {
		t.Errorf("%+v: %+v", m.Rows, m.Cells)
	}
	g := view.NewMatrix(in, "shop00", "shop00", "")
	if want := (view.MatrixCell{Verdict: "none", FromPod: "shop00/pod0", ToPod: "shop00/pod1"}); len(g.Rows) != 2 || g.Cells[1][0] != want {
		t.Errorf("web to db on the network: %+v", g.Cells)
	}
	in.Network = "shop01/storage"
	if m := view.NewMatrix(in, "", "", ""); !m.Empty || len(m.Networks) != 2 {
		t.Errorf("a network without pods: %+v", m)
	}
	in.Network = ""
	if g := view.NewMatrix(in, "shop00", "shop00", ""); g.Cells[1][0].Verdict != "some" {
		t.Errorf("web to db on the cluster's network: %+v", g.Cells[1][0])
	}
}

// Pods' interfaces on further networks are known before any policy has agents publish them, and a MultiNetworkPolicy selects
// only pods on its networks.
func TestEndpoints(t *testing.T) {
	pods := []model.Pod{
		{Namespace: "shop", Name: "web", UID: "1", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Annotations: map[string]string{
			"k8s.v1.cni.cncf.io/network-status": `[{"name":"weft","interface":"eth0","ips":["10.0.0.1"],"default":true,"dns":{}},
				{"name":"shop/storage","interface":"net1","ips":["172.16.0.1","fd00::1"],"dns":{}}]`,
		}},
		{Namespace: "shop", Name: "db", UID: "2", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Annotations: map[string]string{
			"k8s.v1.cni.cncf.io/network-status": `[{"name":"shop/old","interface":"net1","ips":["172.16.9.9"]}]`,
		}},
		{Namespace: "shop", Name: "odd", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.3")}, Annotations: map[string]string{"k8s.v1.cni.cncf.io/network-status": "{"}},
	}
	published := []model.WorkloadEndpoint{{
		Pod: model.PodRef{Namespace: "shop", Name: "db", UID: "2"}, Network: "shop/storage", IfName: "net1", Addrs: []netip.Addr{netip.MustParseAddr("172.16.0.2")},
	}}
	all := view.Endpoints(pods, published)
	got := fmt.Sprint(len(all))
	for _, e := range all {
		got += fmt.Sprintf("; %s %s %v", e.Pod, e.Network, e.Addrs)
	}
	if want := "2; shop/db shop/storage [172.16.0.2]; shop/web shop/storage [172.16.0.1 fd00::1]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m := view.NewMatrix(reach.Input{Network: "shop/storage", Pods: pods, Endpoints: all}, "", "", "")
	if len(m.Rows) != 2 || m.Cells[1][1].Verdict != "all" {
		t.Errorf("without policies: %+v", m)
	}
	v := view.NewPolicies(view.PoliciesInput{Pods: pods, Endpoints: all, Policies: []model.Policy{{
		PolicyKey: model.PolicyKey{Kind: model.KindMultiNetworkPolicy, Namespace: "shop", Name: "closed"}, Networks: []string{"shop/storage"},
		Subject: model.PodPeer{Namespace: "shop"}, Ingress: model.PolicyDirection{On: true},
	}}})
	if p := v.Policies[0]; p.Pods != 2 || !slices.Equal(p.Selects, []string{"shop/web", "shop/db"}) || v.Open != 1 {
		t.Errorf("policy %+v, %d pods without one", p, v.Open)
	}
}
