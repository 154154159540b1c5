// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-net/weft/internal/state"
)

// QoSTable names the table that limits packets and connections of pods.
const QoSTable = "weft_qos"

// Which sets and maps of the table a pod can be in. What it sends comes in over its link, what it gets goes out.
const (
	packetsOut = "packets_out"
	packetsIn  = "packets_in"
	connsOut   = "conns_out"
	connsIn    = "conns_in"
)

// DSCP is the code point that the request's pod asks for, of what it sends out of the cluster; the mesh knows what that
// is.
func (Calico) DSCP(in Input) (uint8, bool) {
	r := in.Request
	if r.Origin == nil ||
		!slices.ContainsFunc(r.Origin.Annotations, func(kv [2]string) bool { return kv[0] == calicoQoS+"dscp" }) {
		return 0, false
	}
	c, err := decoded(in, readCalico)
	if err != nil {
		return 0, false
	}
	w, err := c.words(r)
	if err != nil || w.qos.dscp == nil {
		return 0, false
	}
	return *w.qos.dscp, true
}

// limits adds what annotations limit of a pod's traffic. Bandwidth is shaped where packets leave a queue, as plugin
// bandwidth does it; the rest are elements that keep count.
func (q qos) limits(f *state.Fragment, in Input, ends pair) {
	mtu := uint64(max(ends.pod.MTU, 1500))
	if q.egress.rate != 0 {
		f.Pod.Qdiscs = append(f.Pod.Qdiscs, q.egress.bucket(ends.pod.Name, mtu))
	}
	if q.ingress.rate != 0 {
		f.Host.Qdiscs = append(f.Host.Qdiscs, q.ingress.bucket(ends.host.Name, mtu))
	}
	if t, any := q.table(ends.host.Name, elementMark(in.Request.Key())); any {
		f.Host.Tables = append(f.Host.Tables, t)
	}
}

// bucket is the token bucket of a direction. At the peak rate no less than a packet passes at once.
func (f flow) bucket(link string, mtu uint64) state.Qdisc {
	const octet, header = 8, 14
	b := limit{rate: f.rate, burst: min(f.burst, octet*math.MaxUint32)}.bucket(link)
	if f.peak != 0 {
		b.Peak, b.PeakBurst = f.peak/octet, uint32(max(f.minburst, mtu+header)) //nolint:gosec // 100 MB at most: see flow
	}
	return b
}

// table is the shared table with a link's elements; false when there are none.
func (q qos) table(link, mark string) (state.Table, bool) {
	t, any := qosTable(), false
	add := func(set string, e state.Element) {
		i := slices.IndexFunc(t.Sets, func(s state.Set) bool { return s.Name == set })
		e.Key, e.Comment = []string{link}, mark
		t.Sets[i].Elements, any = append(t.Sets[i].Elements, e), true
	}
	for _, way := range []struct {
		flow           flow
		packets, conns string
	}{{q.egress, packetsOut, connsOut}, {q.ingress, packetsIn, connsIn}} {
		if n := way.flow.packets; n != 0 {
			add(way.packets, state.Element{
				Keeps: fmt.Sprintf("limit rate over %d/second burst %d packets", n, way.flow.packetBurst),
			})
		}
		if n := way.flow.conns; n != 0 {
			add(way.conns, state.Element{Keeps: fmt.Sprintf("ct count over %d", n)})
		}
	}
	return t, any
}

// qosTable is the table without elements. What is over a limit is dropped; a connection that is, at its first packet,
// and one of TCP is told so: who waits for an answer tries again and again.
//
// Where a packet leaves is known only when it is routed, and where nothing can be refused any more it is too late: so
// what a pod is sent by others is looked at on its way through, and what the node itself sends behind the translation
// of its address.
func qosTable() state.Table {
	t := state.Table{Family: "inet", Name: QoSTable, Shared: true}
	for _, name := range []string{packetsOut, packetsIn, connsOut, connsIn} {
		t.Sets = append(t.Sets, state.Set{Name: name, Key: "ifname"})
	}
	const mangle, translated = -150, -50 // behind conntrack; behind the translation of destinations
	t.Chains = []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: mangle, Policy: "accept", Rules: texts(
			slices.Concat([]string{"iifname @" + packetsOut + " drop"}, refuse("iifname @"+connsOut))...)},
		{
			Name: "forward", Type: "filter", Hook: "forward", Priority: mangle, Policy: "accept",
			Rules: texts(refuse("oifname @" + connsIn)...),
		},
		{
			Name: "output", Type: "filter", Hook: "output", Priority: translated, Policy: "accept",
			Rules: texts(refuse("oifname @" + connsIn)...),
		},
		{
			Name: "postrouting", Type: "filter", Hook: "postrouting", Priority: mangle, Policy: "accept",
			Rules: texts("oifname @" + packetsIn + " drop"),
		},
	}
	return passing([]state.Table{t})[0]
}

// refuse are the rules that refuse a new connection of a link. A packet comes to one of them only: each look counts.
func refuse(link string) []string {
	return []string{
		"meta l4proto tcp ct state new " + link + " reject with tcp reset",
		"meta l4proto != tcp ct state new " + link + " drop",
	}
}
