// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/osrg/gobgp/v4/api"

	"github.com/weft-net/weft/internal/plan/bgp"
)

// The names of GoBGP's policies for what is learned and for what is announced.
const (
	policyIn  = "weft-in"
	policyOut = "weft-out"
	// globalTable is GoBGP's name of the table of all peers.
	globalTable = "global"
)

// policies makes GoBGP's policies those of the configuration. If they have changed, all routes are evaluated again; sessions
// continue.
func (s *Speaker) policies(ctx context.Context) error {
	p := newPolicies(s.want)
	if len(s.have.Refused) > 0 && reflect.DeepEqual(p, newPolicies(s.have)) {
		return nil
	}
	err := s.bgp.SetPolicies(ctx, &api.SetPoliciesRequest{
		DefinedSets: p.sets, Policies: []*api.Policy{{Name: policyIn, Statements: p.in}, {Name: policyOut, Statements: p.out}},
	})
	if err != nil {
		return err
	}
	for _, a := range []*api.PolicyAssignment{
		{
			Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, Policies: []*api.Policy{{Name: policyIn}},
			DefaultAction: api.RouteAction_ROUTE_ACTION_ACCEPT,
		},
		{
			Name: globalTable, Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT, Policies: []*api.Policy{{Name: policyOut}},
			DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		},
	} {
		if err := s.bgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: a}); err != nil {
			return err
		}
	}
	if len(s.have.Peers) == 0 {
		return nil
	}
	return s.bgp.ResetPeer(ctx, &api.ResetPeerRequest{Soft: true, Direction: api.ResetPeerRequest_DIRECTION_BOTH})
}

// policies are GoBGP's sets and statements of a configuration.
type policies struct {
	sets    []*api.DefinedSet
	in, out []*api.Statement
	n       int // of names
}

func newPolicies(c bgp.Speaker) policies {
	var p policies
	var strict, withoutDefault, self, keep []netip.Addr
	reflector := false
	for _, peer := range c.Peers {
		if !peer.Addr.IsValid() { // has not been found yet
			continue
		}
		if !peer.Pods {
			strict = append(strict, peer.Addr)
		}
		if !peer.Default {
			withoutDefault = append(withoutDefault, peer.Addr)
		}
		if peer.NextHopSelf {
			self = append(self, peer.Addr)
		}
		if peer.NextHopKeep {
			keep = append(keep, peer.Addr)
		}
		reflector = reflector || peer.Client
	}
	accept, reject := actions(true), actions(false)
	local := func() *api.Conditions { return &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL} }
	p.in = append(p.in, p.statement(local(), accept))
	for _, set := range p.ranges(c.Refused) {
		p.in = append(p.in, p.statement(&api.Conditions{PrefixSet: set}, reject))
	}
	if len(strict) > 0 {
		from := p.neighbors(strict)
		for _, set := range p.ranges(c.Pods) {
			p.in = append(p.in, p.statement(&api.Conditions{NeighborSet: from, PrefixSet: set}, reject))
		}
	}
	if len(withoutDefault) > 0 {
		from := p.neighbors(withoutDefault)
		for _, set := range p.ranges([]bgp.Range{
			{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}, {Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
		}) {
			p.in = append(p.in, p.statement(&api.Conditions{NeighborSet: from, PrefixSet: set}, reject))
		}
	}
	for _, set := range p.ranges(c.Unexported) {
		p.out = append(p.out, p.statement(&api.Conditions{PrefixSet: set}, reject))
	}
	if len(self) > 0 {
		p.out = append(p.out, p.statement(&api.Conditions{NeighborSet: p.neighbors(self)},
			&api.Actions{Nexthop: &api.NexthopAction{Self: true}}))
	}
	if len(keep) > 0 {
		p.out = append(p.out, p.statement(&api.Conditions{NeighborSet: p.neighbors(keep)},
			&api.Actions{Nexthop: &api.NexthopAction{Unchanged: true}}))
	}
	for _, peer := range c.Peers {
		if len(peer.Import)+len(peer.Export) == 0 || !peer.Addr.IsValid() {
			continue
		}
		with := p.neighbors([]netip.Addr{peer.Addr})
		for _, r := range peer.Import {
			p.in = append(p.in, p.rule(with, r)...)
		}
		for _, r := range peer.Export {
			p.out = append(p.out, p.rule(with, r)...)
		}
	}
	p.out = append(p.out, p.statement(local(), accept))
	if reflector {
		for _, set := range p.ranges(c.Pods) {
			p.out = append(p.out, p.statement(&api.Conditions{PrefixSet: set}, accept))
		}
	}
	return p
}

func actions(accept bool) *api.Actions {
	if accept {
		return &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}
	}
	return &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT}
}

func (p *policies) name() string {
	p.n++
	return fmt.Sprintf("weft-%d", p.n)
}

func (p *policies) statement(c *api.Conditions, a *api.Actions) *api.Statement {
	return &api.Statement{Name: p.name(), Conditions: c, Actions: a}
}

func (p *policies) set(s *api.DefinedSet) *api.MatchSet {
	s.Name = p.name()
	p.sets = append(p.sets, s)
	return &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: s.Name}
}

func (p *policies) neighbors(addrs []netip.Addr) *api.MatchSet {
	s := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR}
	for _, a := range addrs {
		s.List = append(s.List, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return p.set(s)
}

// ranges returns a set for each family of the ranges.
func (p *policies) ranges(all []bgp.Range) []*api.MatchSet {
	var out []*api.MatchSet
	for _, six := range []bool{false, true} {
		s := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX}
		for _, r := range all {
			if r.Prefix.Addr().Is6() == six {
				s.Prefixes = append(s.Prefixes, &api.Prefix{
					IpPrefix: r.Prefix.String(), MaskLengthMin: uint32(r.Min), MaskLengthMax: uint32(r.Max),
				})
			}
		}
		if len(s.Prefixes) > 0 {
			out = append(out, p.set(s))
		}
	}
	return out
}

// rule returns the statements of a rule: GoBGP has no alternatives of conditions of different kinds.
func (p *policies) rule(with *api.MatchSet, r bgp.Rule) []*api.Statement {
	types := []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_UNSPECIFIED}
	if r.Remote {
		types = []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_INTERNAL, api.Conditions_ROUTE_TYPE_EXTERNAL}
	}
	plain, large := communities(r.Communities)
	type community struct{ plain, large *api.MatchSet }
	either := []community{{}}
	if len(plain)+len(large) > 0 {
		either = nil
	}
	if len(plain) > 0 {
		either = append(either, community{plain: p.set(&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_COMMUNITY, List: plain})})
	}
	if len(large) > 0 {
		either = append(either, community{large: p.set(&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, List: large})})
	}
	var path *api.MatchSet
	if len(r.ASPathPrefix) > 0 {
		var b strings.Builder
		b.WriteString("^")
		for _, as := range r.ASPathPrefix {
			fmt.Fprintf(&b, "%d_", as)
		}
		path = p.set(&api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_AS_PATH, List: []string{b.String()}})
	}
	var out []*api.Statement
	for _, set := range p.ranges(r.Ranges) {
		for _, typ := range types {
			for _, c := range either {
				for _, a := range ruleActions(r) {
					out = append(out, p.statement(&api.Conditions{
						NeighborSet: with, PrefixSet: set, RouteType: typ, AsPathSet: path, CommunitySet: c.plain, LargeCommunitySet: c.large,
					}, a))
				}
			}
		}
	}
	return out
}

// ruleActions returns the actions of a rule in their order; the last one decides.
func ruleActions(r bgp.Rule) []*api.Actions {
	var out []*api.Actions
	if r.Accept {
		for i := len(r.Prepend) - 1; i >= 0; i-- {
			out = append(out, &api.Actions{AsPrepend: &api.AsPrependAction{Asn: r.Prepend[i], Repeat: 1}})
		}
	}
	last := actions(r.Accept)
	if plain, large := communities(r.AddCommunities); r.Accept {
		if len(plain) > 0 {
			last.Community = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: plain}
		}
		if len(large) > 0 {
			last.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_ADD, Communities: large}
		}
	}
	return append(out, last)
}

// communities divides communities into plain and large ones.
func communities(all []string) (plain, large []string) {
	for _, c := range all {
		if strings.Count(c, ":") == 2 {
			large = append(large, c)
		} else {
			plain = append(plain, c)
		}
	}
	return plain, large
}
