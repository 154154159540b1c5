// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"fmt"
	"strings"

	"github.com/weft-net/weft/internal/bench"
	"github.com/weft-net/weft/internal/bench/path"
	"github.com/weft-net/weft/internal/bench/policy"
)

// The groups of figures. GroupCalls are those of programs that are started.
const (
	GroupCalls   = "ADD and DEL"
	GroupCounts  = "Counts of an ADD"
	GroupMesh    = "Programming the mesh"
	GroupPath    = "Packets from pod to pod"
	GroupPolicy  = "Connections with policies"
	GroupRepairs = "Repairs, p95"
)

// agentImpl and standaloneImpl are the names of weft in reports of calls, through the agent and without one. The rows
// of their floors have no limit: they say which limits a host can keep.
const (
	agentImpl      = "weft-agent"
	standaloneImpl = "weft-standalone"
)

// limit is a limit of a figure.
type limit struct {
	value   float64
	atLeast bool
}

// callLimits are those of ratios to the reference plugins, by chain, metric and calls at a time.
func callLimits() map[string]limit {
	return map[string]limit{
		"pod add 1": {1.0 / 27, false}, "pod add 8": {1.0 / 33, false}, "pod del 8": {1.0 / 60, false},
		"bridge4 add 1": {0.33, false},
	}
}

// standaloneLimits are those without an agent.
func standaloneLimits() map[string]limit {
	return map[string]limit{"pod add 1": {1.0 / 5, false}, "pod add 8": {1.0 / 5, false}}
}

// maxNetworks is the limit of an ADD of a pod with eight networks in relation to that with one.
const maxNetworks = 1.3

// maxSyscalls is the limit of system calls of an ADD over an empty Go program, maxStart that of a run of weft-cni in
// relation to it, and maxRepair that of a repair in ms.
const maxSyscalls, maxStart, maxRepair = 100, 1.3, 1000

// pathLimits are those of ratios to flannel, by back end and test.
func pathLimits() map[string]limit {
	return map[string]limit{
		"host-gw tcp rr": {1.24, true}, "host-gw packets": {1.45, true}, "host-gw connect": {1.15, true},
		"vxlan tcp rr": {1.25, true}, "vxlan packets": {1.45, true}, "vxlan connect": {1.30, true},
	}
}

// meshLimits are those of the start with 10,000 peers in ms, by back end.
func meshLimits() map[string]float64 { return map[string]float64{"host-gw": 40, "vxlan": 90} }

// AddShim adds the run of weft-cni, and what an empty program takes.
func (r *Report) AddShim(in bench.Report) {
	for _, x := range in.Rows {
		if x.Impl == "empty" {
			r.Empty = x.P50
		}
	}
	for _, x := range in.Rows {
		if x.Impl == "weft-cni" && r.Empty > 0 {
			r.Rows = append(r.Rows, Row{
				Group: GroupCalls, Name: "run of weft-cni", Unit: x.Unit, N: x.N, Weft: x.P50, Peer: r.Empty,
				PeerName: "empty Go program", Ratio: x.P50 / r.Empty, Limit: maxStart,
			})
		}
	}
}

// AddCalls adds ADD and DEL of a chain through the agent, and without one, compared with a peer, and their floors.
func (r *Report) AddCalls(in bench.Report) {
	for _, form := range []struct {
		impl, suffix string
		limits       map[string]limit
	}{
		{agentImpl, "", callLimits()},
		{bench.FloorAgent, ", the floor", nil},
		{standaloneImpl, " without an agent", standaloneLimits()},
		{bench.FloorStandalone, " without an agent, the floor", nil},
	} {
		for _, ratio := range in.Ratios {
			if ratio.Weft != form.impl || ratio.Metric != "add" && ratio.Metric != "del" {
				continue
			}
			row := callRow(in, ratio, ratio.Chain+form.suffix, ratio.Peer, ratio.Chain)
			row.setLimit(form.limits, fmt.Sprintf("%s %s %d", ratio.Chain, ratio.Metric, ratio.Concurrency))
			r.Rows = append(r.Rows, row)
		}
	}
	for _, x := range in.Rows {
		if x.Impl == agentImpl && x.Metric == "add_syscalls_over_empty" {
			r.Rows = append(r.Rows, Row{
				Group: GroupCounts, Name: "system calls over an empty program, ADD of " + x.Chain, N: x.N, Weft: x.P50,
				Limit: maxSyscalls, Counted: true,
			})
		}
	}
	r.Notes = append(r.Notes, in.Notes...)
}

// AddNetworks adds ADD and DEL of a pod with a chain and further networks through the agent, compared with the chain
// alone, and the floor of that ADD: what further networks add to the floor of the chain, added to weft's own time for it.
func (r *Report) AddNetworks(in bench.Report, chain string, more int) {
	for _, ratio := range in.Ratios {
		if ratio.Weft != agentImpl || ratio.Peer != agentImpl+" "+chain {
			continue
		}
		row := callRow(in, ratio, fmt.Sprintf("%s and %d networks", chain, more), agentImpl, chain)
		row.PeerName = chain
		if ratio.Metric != "add" {
			r.Rows = append(r.Rows, row)
			continue
		}
		row.Limit = maxNetworks
		r.Rows = append(r.Rows, row)
		first, all := findRow(in, ratio, bench.FloorAgent, chain), findRow(in, ratio, bench.FloorAgent, ratio.Chain)
		if first.N > 0 && all.N > 0 {
			least := row.Peer + all.P50 - first.P50
			r.Rows = append(r.Rows, Row{
				Group: GroupCalls, Name: fmt.Sprintf("ADD of %s and %d networks, the floor, %d at a time", chain, more, ratio.Concurrency),
				Unit: row.Unit, N: all.N, Weft: least, Peer: row.Peer, PeerName: chain, Ratio: least / row.Peer,
			})
		}
	}
}

// callRow returns the figure of a ratio of calls. What was called is what, and the peer is a row of the chain peerChain.
func callRow(in bench.Report, ratio bench.Ratio, what, peerImpl, peerChain string) Row {
	weft, peer := findRow(in, ratio, ratio.Weft, ratio.Chain), findRow(in, ratio, peerImpl, peerChain)
	row := Row{
		Group: GroupCalls, Name: fmt.Sprintf("%s of %s, %d at a time", strings.ToUpper(ratio.Metric), what, ratio.Concurrency),
		Unit: weft.Unit, N: weft.N, Weft: weft.P50, Peer: peer.P50, PeerName: peerImpl, Ratio: ratio.Ratio,
	}
	if peer.P95 > 0 && peer.P50 > 0 { // each against the other's median
		row.Low, row.High = weft.P50/peer.P95, weft.P95/peer.P50
	}
	return row
}

func findRow(in bench.Report, ratio bench.Ratio, impl, chain string) bench.Row {
	for _, x := range in.Rows {
		if x.Impl == impl && x.Metric == ratio.Metric && x.Chain == chain && x.Concurrency == ratio.Concurrency &&
			x.Pods == ratio.Pods {
			return x
		}
	}
	return bench.Row{}
}

// AddMesh adds the start and the change of a node's peers.
func (r *Report) AddMesh(in bench.MeshReport) {
	for _, x := range in.Rows {
		if x.Metric != "time" || x.Ratio == 0 || x.Way != "one by one" {
			continue
		}
		row := Row{
			Group: GroupMesh, Name: fmt.Sprintf("%s %s, %d peers", x.Op, x.Backend, x.Peers), Unit: x.Unit, N: x.N,
			Weft: x.Ratio * x.Median, Peer: x.Median, PeerName: "requests one by one", Ratio: x.Ratio,
		}
		for _, own := range in.Rows {
			if own.Way == "weft" && own.Metric == x.Metric && own.Backend == x.Backend && own.Op == x.Op && own.Peers == x.Peers {
				row.Low, row.High = own.Min/x.Median, own.Max/x.Median
			}
		}
		if most := meshLimits()[x.Backend]; x.Op == "up" && x.Peers == 10_000 {
			row.Limit = most / x.Median
		}
		r.Rows = append(r.Rows, row)
	}
}

// AddPath adds the tests of packets, compared with flannel's design.
func (r *Report) AddPath(in path.Report) {
	limits := pathLimits()
	for _, x := range in.Rows {
		if x.Flannel == 0 || !strings.HasPrefix(x.Design, "weft") {
			continue
		}
		row := Row{
			Group: GroupPath, Name: strings.TrimSpace(x.Where+" "+x.Backend) + ", " + x.Test, Unit: x.Unit, N: x.N,
			Weft: x.Median, Peer: x.Median / x.Flannel, PeerName: "flannel", Ratio: x.Flannel, Low: x.FlannelMin, High: x.FlannelMax,
		}
		if x.Design != "weft" {
			row.Name += ", " + strings.TrimSpace(strings.TrimPrefix(x.Design, "weft"))
		}
		if x.Where == "across" {
			row.setLimit(limits, x.Backend+" "+x.Test)
		}
		r.Rows = append(r.Rows, row)
	}
	r.Notes = append(r.Notes, in.Notes...)
}

// AddPolicy adds the tests with policies, compared with a node without rules.
func (r *Report) AddPolicy(in policy.Report) {
	for _, x := range in.Rows {
		if x.Engine != "weft" || x.Routed == 0 || x.Policies == 0 {
			continue
		}
		r.Rows = append(r.Rows, Row{
			Group: GroupPolicy, Name: fmt.Sprintf("%s, %d policies, %d peers", x.Test, x.Policies, x.Peers), Unit: x.Unit, N: x.N,
			Weft: x.Median, Peer: x.Median / x.Routed, PeerName: "no rules", Ratio: x.Routed, Low: x.RoutedMin, High: x.RoutedMax,
		})
	}
}

// AddRepair adds the repairs, which have no peer.
func (r *Report) AddRepair(in bench.RepairReport) {
	for _, x := range in.Rows {
		if x.Metric == "time" && x.Extent == "one object" {
			r.Rows = append(r.Rows, Row{
				Group: GroupRepairs, Name: fmt.Sprintf("%s, %d pods", x.What, in.Pods), Unit: x.Unit, N: x.N, Weft: x.P95,
				Limit: maxRepair,
			})
		}
	}
}

func (x *Row) setLimit(limits map[string]limit, key string) {
	if l, ok := limits[key]; ok {
		x.Limit, x.AtLeast = l.value, l.atLeast
	}
}
