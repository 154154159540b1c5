// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/lab/layout"
)

// Each node is below one leaf, both ends of a link know each other's AS, and a lab without a fabric has no routers.
func TestRouters(t *testing.T) {
	s := layout.Spec{
		Name: "lab", Nodes: 5, Wires: 1, Fabric: layout.LeafSpine, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
	}
	l, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range Routers(l) {
		text := fmt.Sprintf("%s %d:", r.Name, r.ASN)
		for _, l := range r.Links {
			text += fmt.Sprintf(" %s %d", l.Name, l.ASN)
		}
		out = append(out, text)
	}
	want := `leaf1 65001: node1 64513 node3 64515 node5 64517 spine1 65000 spine2 65000
leaf2 65002: node2 64514 node4 64516 spine1 65000 spine2 65000
spine1 65000: leaf1 65001 leaf2 65002
spine2 65000: leaf1 65001 leaf2 65002`
	if got := strings.Join(out, "\n"); got != want {
		t.Errorf("routers\n%s\nwant\n%s", got, want)
	}
	if text := NodeManifests(l); !strings.Contains(text, "{interface: fabric0, asNumber: 65002, node: node4, localASNumber: 64516}") {
		t.Errorf("manifests:\n%s", text)
	}
	s.Fabric = ""
	if l, err = s.Layout(); err != nil || len(Routers(l)) > 0 {
		t.Errorf("without a fabric: %v, %v", Routers(l), err)
	}
}
