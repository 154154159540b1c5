// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/kernel/link"
	"github.com/weft-net/weft/internal/kernel/netfilter"
	"github.com/weft-net/weft/internal/kernel/reader"
	"github.com/weft-net/weft/internal/kernel/rtnl"
	"github.com/weft-net/weft/internal/kernel/sysctl"
	"github.com/weft-net/weft/internal/state"
)

// Namespace answers queries about one namespace.
type Namespace struct {
	Reader *reader.Reader
	// Socket is the socket of Reader, which also resolves gateways.
	Socket   *rtnl.Socket
	Settings *sysctl.Files
	// Filters also has the root directory of the node's files.
	Filters *netfilter.Filters
}

// Spaces are the namespaces of a fragment; a missing one is nil.
type Spaces struct{ Host, Pod *Namespace }

func (s Spaces) namespace(name state.SpaceName) *Namespace {
	if name == state.Pod {
		return s.Pod
	}
	return s.Host
}

// Answer answers a planner's queries, reading all links that are queried by name in one exchange per namespace. In a
// space without a namespace nothing is found.
func (s Spaces) Answer(ctx context.Context, queries []state.Query) (state.Answers, error) {
	out := make(state.Answers, len(queries))
	for _, name := range []state.SpaceName{state.Host, state.Pod} {
		c := s.namespace(name)
		var names []string
		for _, q := range queries {
			if q.Space == name {
				out[q] = state.Answer{}
				names = append(names, nonEmpty(q.Link, q.Except, q.Routes, q.OtherEnd, q.Gateways, q.Neighs)...)
			}
		}
		if c == nil {
			continue
		}
		links, err := c.Reader.LinksByName(ctx, names)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		packetFilters := &filters{Filters: c.Filters}
		for _, q := range queries {
			if q.Space != name {
				continue
			}
			if q.OtherEnd != "" {
				out[q], err = s.answerOtherEnd(ctx, q, links)
			} else {
				out[q], err = c.answer(ctx, q, links, packetFilters)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return out, nil
}

func nonEmpty(names ...string) []string {
	var out []string
	for _, name := range names {
		if name != "" {
			out = append(out, name)
		}
	}
	return out
}

func (c *Namespace) answer(
	ctx context.Context, q state.Query, links map[string]link.Found, packetFilters *filters,
) (state.Answer, error) {
	switch {
	case q.Link != "":
		f, ok := links[q.Link]
		if !ok || f.Dead() {
			return state.Answer{}, nil
		}
		return c.describe(ctx, f)
	case q.Routes != "":
		f, ok := links[q.Routes]
		if !ok || f.Dead() {
			return state.Answer{}, nil
		}
		return c.answerRoutes(ctx, f, q.Main)
	case q.Neighs != "":
		return c.answerNeighs(ctx, links[q.Neighs])
	case q.Gateways != "":
		return c.answerGateways(ctx, links[q.Gateways])
	case q.DefaultLink != "":
		return c.answerDefault(ctx, q.DefaultLink == "6", links[q.Except].Index)
	case q.LinkOf.IsValid():
		return c.answerLinkOf(ctx, q.LinkOf)
	case q.RouteTo.IsValid():
		return c.answerRouteTo(ctx, q.RouteTo)
	case q.ForwardDrop != "":
		return packetFilters.dropped(ctx, q.ForwardDrop)
	case q.Chain != "" && q.Comment != "":
		return packetFilters.commented(ctx, q.Chain, q.Comment)
	case q.Chain != "":
		return packetFilters.chain(ctx, q.Chain)
	case q.Firewalld:
		return packetFilters.firewalld(ctx)
	case q.Program != "":
		return packetFilters.program(q.Program), nil
	case !q.Device.IsZero():
		return c.answerDevice(ctx, q.Device)
	case q.File != "":
		return c.answerFile(q.File)
	case q.Tables:
		return c.answerTables(ctx)
	case q.Tap:
		if err := link.TapReady(); err != nil {
			return state.Answer{Value: err.Error()}, nil
		}
		return state.Answer{Found: true}, nil
	}
	values, err := c.Settings.Read([]string{q.Sysctl})
	v := values[q.Sysctl]
	return state.Answer{Found: err == nil && !v.Missing && !v.Hidden, Value: v.Text}, err
}

// describe returns a link with its master's name and its addresses, except for IPv6 link-local ones.
func (c *Namespace) describe(ctx context.Context, f link.Found) (state.Answer, error) {
	a := state.Answer{Found: true, Link: f.Link}
	if f.MasterIndex != 0 {
		master, _, err := c.Reader.LinkByIndex(ctx, f.MasterIndex)
		if err != nil {
			return a, err
		}
		a.Link.Master = master.Name
	}
	addrs, err := c.Reader.Addrs(ctx, f.Index)
	for _, found := range addrs {
		if !found.LinkLocal() {
			found.Link = f.Name
			a.Addrs = append(a.Addrs, found.Addr)
		}
	}
	return a, err
}

// answerLinkOf returns the link that has an address. A host shim has its master's: the answer is the master.
func (c *Namespace) answerLinkOf(ctx context.Context, ip netip.Addr) (state.Answer, error) {
	addrs, err := c.Reader.Addrs(ctx, 0)
	if err != nil {
		return state.Answer{}, err
	}
	for _, found := range addrs {
		if found.Prefix.Addr() != ip {
			continue
		}
		a, err := c.answerIndex(ctx, found.Index)
		if err != nil || !strings.HasPrefix(a.Link.Name, state.HostShimPrefix) {
			return a, err
		}
	}
	return state.Answer{}, nil
}

func (c *Namespace) answerRouteTo(ctx context.Context, to netip.Addr) (state.Answer, error) {
	index, err := c.Reader.LinkTo(ctx, to)
	if err != nil || index == 0 {
		return state.Answer{}, err
	}
	return c.answerIndex(ctx, index)
}

func (c *Namespace) answerIndex(ctx context.Context, index int) (state.Answer, error) {
	f, ok, err := c.Reader.LinkByIndex(ctx, index)
	if err != nil || !ok {
		return state.Answer{}, err
	}
	return c.describe(ctx, f)
}

func (c *Namespace) answerDefault(ctx context.Context, v6 bool, except int) (state.Answer, error) {
	family := uint8(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	routes, err := c.Reader.Routes(ctx, family, 0, unix.RT_TABLE_MAIN)
	if err != nil {
		return state.Answer{}, err
	}
	best := link.FoundRoute{}
	for _, r := range routes {
		if r.Dst.Bits() == 0 && r.Type == unix.RTN_UNICAST && r.Index != 0 && r.Index != except &&
			(best.Index == 0 || r.Metric < best.Metric) {
			best = r
		}
	}
	if best.Index == 0 {
		return state.Answer{}, nil
	}
	return c.answerIndex(ctx, best.Index)
}

func (c *Namespace) answerRoutes(ctx context.Context, f link.Found, main bool) (state.Answer, error) {
	a := state.Answer{Found: true, Link: f.Link}
	table := uint32(0)
	if main {
		table = unix.RT_TABLE_MAIN
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		routes, err := c.Reader.Routes(ctx, family, f.Index, table)
		if err != nil {
			return a, err
		}
		for _, r := range routes {
			if r.Index != f.Index || main && r.Type != unix.RTN_UNICAST || !main && r.ByKernel() {
				continue
			}
			r.Link = f.Name
			a.Routes = append(a.Routes, r.Route)
		}
	}
	return a, nil
}

// answerNeighs returns the permanent neighbors of a link.
func (c *Namespace) answerNeighs(ctx context.Context, f link.Found) (state.Answer, error) {
	if f.Index == 0 || f.Dead() {
		return state.Answer{}, nil
	}
	neighs, err := c.Reader.PermanentNeighs(ctx, f)
	return state.Answer{Found: err == nil, Neighs: neighs}, err
}
