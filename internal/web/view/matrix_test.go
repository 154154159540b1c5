// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy/reach"
	"github.com/weft-net/weft/internal/web/view"
)

// shops returns namespaces with web and db pods, of which only web may connect to db in its own namespace.
func shops(namespaces, pods int) *reach.Reach {
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
	return reach.New(in)
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
	if none := view.NewMatrix(reach.New(reach.Input{}), "", "", ""); !none.Empty || len(none.Rows) != 0 {
		t.Errorf("without pods: %+v", none)
	}
	if gone := view.NewMatrix(r, "no-such", "shop03", ""); len(gone.Rows) != 0 || len(gone.Cells) != 0 || gone.Empty {
		t.Errorf("a namespace without pods: %+v", gone)
	}
}
