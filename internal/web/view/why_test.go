// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
	"github.com/weft-net/weft/internal/web/view"
)

// The places of a packet are distinguished from those of its answer, each once in a row.
func TestTracePlaces(t *testing.T) {
	from, to := netip.MustParseAddrPort("10.0.0.1:40000"), netip.MustParseAddrPort("10.0.1.1:80")
	end := func(name, node string, a netip.AddrPort) explain.End {
		return explain.End{Kind: explain.PodEnd, Name: name, Node: node, Addr: a.Addr()}
	}
	step := func(node, pod string, from, to netip.AddrPort) packettrace.Step {
		return packettrace.Step{Node: node, Pod: pod, Chain: "prerouting", Verdict: "arrived", From: from, To: to}
	}
	v := view.NewTrace(packettrace.Report{
		From: end("shop/web", "node1", from), To: end("shop/db", "node2", to), State: packettrace.Arrived, Protocol: model.TCP, Port: 80,
		Steps: []packettrace.Step{
			step("node1", "shop/web", from, to), step("node1", "", from, to), step("node1", "", from, to), step("node2", "", from, to),
			step("node2", "shop/db", from, to), step("node2", "shop/db", to, from), step("node2", "", to, from),
			step("node1", "", to, from), step("node1", "shop/web", to, from),
		},
	})
	if want := []string{"shop/web", "node1", "node2", "shop/db"}; !slices.Equal(v.There, want) {
		t.Errorf("the packet was at %q, want %q", v.There, want)
	}
	if want := []string{"shop/db", "node2", "node1", "shop/web"}; !slices.Equal(v.Back, want) {
		t.Errorf("the answer was at %q, want %q", v.Back, want)
	}
	if v.Steps[3].Packet != "packet" || v.Steps[6].Packet != "answer" {
		t.Errorf("steps %+v", v.Steps)
	}
}
