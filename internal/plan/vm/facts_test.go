// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/state"
)

// TestFacts compares the plan of masquerade with KubeVirt 1.9's for the same VM: files that were written by hand from
// its sources, and are never updated by a test. In them each element of a set is a rule of its own. Of IPv6, weft
// leaves away what is about ::1, which the kernel does not let over a link.
func TestFacts(t *testing.T) {
	web := []model.VMPortRange{{Protocol: "tcp", First: 80, Last: 80}, {Protocol: "udp", First: 53, Last: 53}}
	mesh, moves := testVM(masq()), testVM(masq())
	mesh.ServiceMesh = true
	moves.MigrationPorts = []uint16{49152, 49153}
	for name, vm := range map[string]model.VM{
		"all": testVM(masq()), "ports": testVM(masq(web...)), "mesh": mesh, "migration": moves,
	} {
		p, err := New(Input{VM: vm, Answers: answers(dual())})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Networks[0].Fragment.Pod
		var lines []string
		for _, l := range s.Links {
			lines = append(lines,
				fmt.Sprintf("link %s kind %s mac %s mtu %d master %q", l.Name, l.Kind, macOf(l), l.MTU, l.Master))
		}
		for _, a := range s.Addrs {
			if !a.Prefix.Addr().IsLinkLocalUnicast() { // of the router's, which KubeVirt has not
				lines = append(lines, fmt.Sprintf("addr %s dev %s", a.Prefix, a.Link))
			}
		}
		for _, v := range append(s.Sysctls, p.Pod.Fragment.Pod.Sysctls...) {
			if strings.HasSuffix(v.Name, "route_localnet") || strings.Contains(v.Name, "forward") {
				lines = append(lines, v.Name+" = "+v.Value)
			}
		}
		for _, table := range s.Tables {
			if table.Name == tableName {
				lines = append(lines, unfolded(table)...)
			}
		}
		g := p.Networks[0].Guest
		lines = append(lines, fmt.Sprintf("guest %s router %s, %s", g.DHCP4.Address, g.DHCP4.Router, g.DHCP6.Address))
		want, err := os.ReadFile(filepath.Join("testdata", "facts", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), lines); d != "" {
			t.Errorf("%s (-KubeVirt +weft):\n%s", name, d)
		}
	}
}

// macOf returns the MAC address of a link; the tap's may be any.
func macOf(l state.Link) string {
	if l.Kind == state.Tap {
		return "any"
	}
	return l.MAC.String()
}

// unfolded are the rules of a table without its sets.
func unfolded(t state.Table) []string {
	var out []string
	for _, c := range t.Chains {
		head := t.Family + " " + c.Name
		if c.Hook != "" {
			head += fmt.Sprintf(" (%s %s %d)", c.Type, c.Hook, c.Priority)
		}
		if len(c.Rules) == 0 {
			out = append(out, head)
		}
		for _, r := range c.Rules {
			for _, text := range each(t, r.Text) {
				out = append(out, head+": "+text)
			}
		}
	}
	return out
}

// each is a rule for each element of the sets that it asks.
func each(t state.Table, text string) []string {
	for _, s := range t.Sets {
		if !strings.Contains(text, "@"+s.Name) {
			continue
		}
		var out []string
		for _, e := range s.Elements {
			one := strings.Replace(text, "@"+s.Name, strings.Join(e.Key, " "), 1)
			if s.Name == "ports" {
				one = strings.Replace(text, "meta l4proto . th dport @ports", e.Key[0]+" dport "+e.Key[1], 1)
			}
			out = append(out, each(t, one)...)
		}
		return out
	}
	return []string{text}
}
