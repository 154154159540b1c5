// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// TestEnforcementPoint checks that policy show warns that processes can bypass rules in the pod's namespace, and does
// not warn about rules on the host side.
func TestEnforcementPoint(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint compiled.Interface
		open     bool
	}{
		"macvlan":       {compiled.Interface{Point: model.PointPod}, true},
		"routed":        {compiled.Interface{Point: model.PointHost, HostLink: "cali1"}, false},
		"bridge's port": {compiled.Interface{Point: model.PointPort, HostLink: "veth1"}, false},
	} {
		text := enforcementPoint(c.endpoint)
		for _, word := range []string{"enforced in the pod's namespace", "NET_RAW", "NET_ADMIN", "docs/design/security.md"} {
			if strings.Contains(text, word) != c.open {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}

// TestSummaryText: policies and what they denied are tables, -o name lists the policies, and words are in the singular
// where there is one.
func TestSummaryText(t *testing.T) {
	key := model.PolicyKey{Kind: "NetworkPolicy", Namespace: "shop", Name: "friends"}
	s := policy.Summary{
		Node: "node1", Known: true, Interfaces: 1, Policies: []policy.Known{{PolicyKey: key, SelectsNoPods: true}},
		Denied: []policy.Denied{{By: "NetworkPolicy shop/friends ingress", Packets: 1959, Bytes: 96313}},
		HostEndpoints: []compiled.HostEndpointView{
			{Name: "up", Node: "node1", Interface: "eth0", Stages: []compiled.HostStageView{
				{Stage: "local", Direction: "ingress", Policies: []model.PolicyKey{
					{Kind: "GlobalNetworkPolicy", Name: "b"}, {Kind: "GlobalNetworkPolicy", Name: "a"},
				}, Default: compiled.DefaultDeny, Why: "end of tier default"},
				{Stage: "local", Direction: "egress", Default: compiled.DefaultAllow, Why: "profile"},
			}},
			{Name: "lost", Faults: []string{"spec.node is missing"}},
		},
	}
	for format, want := range map[string]string{
		printer.Text: "POLICY                      STATE\n" +
			"NetworkPolicy shop/friends  valid; selects no pods\n" +
			"\nHOST ENDPOINT  INTERFACE  PACKETS        POLICIES                                      DEFAULT                     STATE\n" +
			"up             eth0       local ingress  GlobalNetworkPolicy b, GlobalNetworkPolicy a  Deny (end of tier default)  valid\n" +
			"up             eth0       local egress   -                                             Allow (profile)             -\n" +
			"lost           -          -              -                                             -                           not enforced: spec.node is missing\n" +
			"\nDENIED BY                           PACKETS  BYTES\n" +
			"NetworkPolicy shop/friends ingress  1959     96313\n" +
			"node node1: 1 policy, 1 interface\n",
		printer.Name: "NetworkPolicy shop/friends\n",
	} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		output := printer.Objects(fs, false)
		var out strings.Builder
		if err := errors.Join(fs.Parse([]string{"-o", format}), summaryText(&out, output, s)); err != nil || out.String() != want {
			t.Errorf("-o %s: %v\n%swant\n%s", format, err, &out, want)
		}
	}
}
