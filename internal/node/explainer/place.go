// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/lookup"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/policy"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// place is a namespace that questions are about.
type place struct {
	err     error // why it could not be opened
	ns      *netns.NS
	kernel  *lookup.Namespace
	filters *netfilter.Filters
	sysctls *sysctl.Files
}

// newPlace takes over the namespace.
func newPlace(ns *netns.NS, root string) *place {
	p := &place{ns: ns}
	if p.kernel, p.err = lookup.Open(ns); p.err != nil {
		return p
	}
	p.filters = netfilter.New(ns)
	p.filters.Root = root
	p.sysctls = sysctl.New(ns)
	return p
}

// close closes the namespace; an error has no consequence.
func (p *place) close() {
	if p.sysctls != nil {
		p.sysctls.Close()
	}
	if p.filters != nil {
		_ = p.filters.Close()
	}
	if p.kernel != nil {
		_ = p.kernel.Close()
	}
	if p.ns != nil {
		_ = p.ns.Close()
	}
}

// answer answers one question.
func (e *Explainer) answer(ctx context.Context, p *place, q explain.Question) (a explain.Answer, err error) {
	switch q.Kind {
	case explain.AskPolicy:
		return e.askPolicies(q)
	case explain.AskHost:
		if e.cfg.Policies == nil {
			return a, errNoPolicies
		}
		sides, err := e.cfg.Policies.AtHost(q.HostPacket())
		return explain.Answer{Hosts: &explain.Hosts{Sides: sides}}, err
	}
	if p.err != nil {
		return a, p.err
	}
	switch q.Kind {
	case explain.AskRoute:
		r, err := p.kernel.Route(ctx, lookup.Packet{From: q.From, To: q.To, In: q.In})
		return explain.Answer{Route: &r}, err
	case explain.AskNeighborTable:
		t, err := p.kernel.NeighborTable(ctx, q.To.Is6())
		return explain.Answer{NeighborTable: &t}, err
	case explain.AskLink:
		a.Link, err = p.kernel.Link(ctx, q.Link)
	case explain.AskNeighbor:
		a.Neighbor, err = p.kernel.Neighbor(ctx, q.Link, q.To)
	case explain.AskResolve:
		a.Neighbor, err = p.kernel.Resolve(ctx, q.Link, q.To)
	case explain.AskJoin:
		a.Value, err = e.askJoin(ctx, p, q)
	case explain.AskFDB:
		a.FDB, err = p.kernel.FDB(ctx, q.Link, q.MAC)
	case explain.AskAddress:
		a.Value, err = p.kernel.LinkOf(ctx, q.To)
	case explain.AskSysctl:
		a.Value, err = p.sysctl(q.Name)
	case explain.AskSocket:
		number, ok := protocols()[q.Protocol]
		if !ok {
			return a, fmt.Errorf("protocol %q has no sockets", q.Protocol)
		}
		a.Sockets, err = p.kernel.Listening(ctx, number, q.To, q.Port)
	case explain.AskChains:
		a.Chains, err = p.chains(ctx, q)
	case explain.AskConntrack:
		a.Conntrack = &explain.Conntrack{}
		a.Conntrack.Count, a.Conntrack.Max, err = p.kernel.Conntrack()
	default:
		err = fmt.Errorf("question of kind %q is not known to this version", q.Kind)
	}
	return a, err
}

// protocols are the numbers of protocols with ports.
func protocols() map[model.Protocol]uint8 {
	return map[model.Protocol]uint8{
		model.TCP:  unix.IPPROTO_TCP,
		model.UDP:  unix.IPPROTO_UDP,
		model.SCTP: unix.IPPROTO_SCTP,
	}
}

// sysctl reads a sysctl.
func (p *place) sysctl(name string) (string, error) {
	all, err := p.sysctls.Read([]string{name})
	if err != nil {
		return "", err
	}
	v, ok := all[name]
	if !ok || v.Missing || v.Hidden {
		return "", fmt.Errorf("this kernel has no sysctl %s", name)
	}
	return v.Text, nil
}

// chains reads the packet filters of other programs.
func (p *place) chains(ctx context.Context, q explain.Question) (*explain.Ruleset, error) {
	n, err := p.filters.Netfilter()
	if err != nil {
		return nil, err
	}
	family := 4
	if q.To.Is6() {
		family = 6
	}
	chains, err := n.Ruleset(ctx, family)
	if err != nil {
		return nil, err
	}
	older, err := p.filters.LegacyTables(family == 6)
	if err != nil {
		return nil, err
	}
	out := &explain.Ruleset{Chains: chains}
	for _, table := range older {
		out.Unreadable = append(out.Unreadable, "table "+table+" of iptables-legacy")
	}
	return out, nil
}

// askJoin reports how a tap is joined to an interface of a pod; empty: not as recorded.
func (e *Explainer) askJoin(ctx context.Context, p *place, q explain.Question) (string, error) {
	all, err := e.cfg.Records.List()
	if err != nil {
		return "", err
	}
	guests, err := e.guests(all)
	if err != nil {
		return "", err
	}
	for _, rec := range all {
		end, ok := rec.Endpoint()
		if !ok || end.Pod.String() != q.Pod {
			continue
		}
		j := guests[podLink{rec.Request.ContainerID, q.Link}].join
		if j == nil || j.Tap != q.Name {
			continue
		}
		joined, err := phase1.Joined(ctx, p.ns, []state.Join{*j})
		if err != nil || !joined {
			return "", err
		}
		return "as recorded", nil
	}
	return "", fmt.Errorf("no join of %s and %s is recorded", q.Name, q.Link)
}

var errNoPolicies = errors.New("this agent enforces no network policies")

// askPolicies returns what policies decide about a connection.
func (e *Explainer) askPolicies(q explain.Question) (explain.Answer, error) {
	if e.cfg.Policies == nil {
		return explain.Answer{}, errNoPolicies
	}
	all, err := e.cfg.Policies.Why(policy.Query{
		From: policy.ConnectionEnd{Addr: q.From}, To: policy.ConnectionEnd{Addr: q.To}, Network: q.Network,
		Protocol: q.Protocol, Port: q.Port,
	})
	return explain.Answer{Policy: all}, err
}
