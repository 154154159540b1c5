// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/weft-net/weft/internal/state"
)

// The reference plugin's chains of an ingress policy.
const (
	stage1 = "CNI-ISOLATION-STAGE-1"
	stage2 = "CNI-ISOLATION-STAGE-2"
)

// iptables returns the chains and rules of the reference plugin, for each family that the container has.
func (p firewallPlan) iptables() []state.IPTables {
	var out []state.IPTables
	v4, v6 := p.families()
	if v4 {
		out = append(out, p.filter(false))
	}
	if v6 {
		out = append(out, p.filter(true))
	}
	return out
}

// iptablesWhereDropped returns the same chains for each variant of iptables that drops, or for the default variant if
// none is known to drop.
func (p firewallPlan) iptablesWhereDropped(answers state.Answers) []state.IPTables {
	var out []state.IPTables
	for _, t := range p.iptables() {
		plain, legacy := forwardDrops(answers, t.IPv6)
		if plain || !legacy {
			out = append(out, t)
		}
		if legacy {
			t.Legacy = true
			out = append(out, t)
		}
	}
	return out
}

func (p firewallPlan) filter(v6 bool) state.IPTables {
	t := state.IPTables{IPv6: v6, Table: "filter"}
	forward := state.IPChain{Name: "FORWARD", Shared: true, Rules: []state.IPRule{
		{Text: commented("CNI firewall plugin rules") + " -j CNI-FORWARD", First: true, Shared: true},
	}}
	private := state.IPChain{Name: "CNI-FORWARD", Shared: true, Rules: []state.IPRule{
		{
			Text: commented("CNI firewall plugin admin overrides") + " -j " + p.conf.IptablesAdminChainName, First: true,
			Shared: true,
		},
	}}
	for _, a := range p.addrs {
		if a.Is6() == v6 {
			private.Rules = append(private.Rules,
				state.IPRule{Text: fmt.Sprintf("-d %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", full(a))},
				state.IPRule{Text: fmt.Sprintf("-s %s -j ACCEPT", full(a))})
		}
	}
	t.Chains = []state.IPChain{{Name: p.conf.IptablesAdminChainName, Shared: true}, private}
	if p.bridge != "" {
		t.Chains = append(t.Chains, p.stages()...)
		isolate := state.IPRule{Text: anyPolicy() + " -j " + stage1, First: true, Shared: true}
		forward.Rules = append([]state.IPRule{isolate}, forward.Rules...) // before anything is accepted
	}
	t.Chains = append(t.Chains, forward)
	return t
}

// stages returns the chains that isolate bridges: packets from a bridge with a policy to another bridge are dropped. As
// with the reference plugin these rules are not removed: other containers may need them.
func (p firewallPlan) stages() []state.IPChain {
	policy := commented(fmt.Sprintf("CNI firewall plugin rules (ingressPolicy: %s)", p.conf.IngressPolicy))
	second := state.IPChain{Name: stage2, Shared: true, Rules: []state.IPRule{
		{Text: "-o " + p.bridge + " " + anyPolicy() + " -j DROP", First: true, Shared: true},
		{Text: anyPolicy() + " -j RETURN", Shared: true},
	}}
	first := state.IPChain{Name: stage1, Shared: true}
	if p.conf.IngressPolicy == policyIsolated {
		first.Rules = append(first.Rules,
			state.IPRule{Text: fmt.Sprintf("-i %s -o %s %s -j DROP", p.bridge, p.bridge, policy), First: true, Shared: true})
	}
	first.Rules = append(first.Rules,
		state.IPRule{
			Text: fmt.Sprintf("-i %s ! -o %s %s -j %s", p.bridge, p.bridge, policy, stage2), First: true, Shared: true,
		},
		state.IPRule{Text: anyPolicy() + " -j RETURN", Shared: true})
	return []state.IPChain{second, first}
}

func anyPolicy() string {
	return commented("CNI firewall plugin rules (ingressPolicy: same-bridge|isolated)")
}

func commented(text string) string { return `-m comment --comment "` + text + `"` }
