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

// These are the sets and maps of the table, from the pod's point of view: what the pod sends is input of its interface
// on the node, what it receives is output.
const (
	packetsOut = "packets_out"
	packetsIn  = "packets_in"
	connsOut   = "conns_out"
	connsIn    = "conns_in"
)

// DSCP returns the code point that an annotation of the request's pod sets for packets that leave the cluster. The mesh
// applies it, because only the mesh knows the cluster's prefixes.
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
	w, err := c.spec(r)
	if err != nil || w.qos.dscp == nil {
		return 0, false
	}
	return *w.qos.dscp, true
}

// limits adds the limits that annotations set. Bandwidth is shaped like plugin bandwidth does; the others are stateful
// elements.
func (q qos) limits(f *state.Fragment, in Input, veth pair) {
	mtu := uint64(max(veth.pod.MTU, 1500))
	if q.egress.rate != 0 {
		f.Pod.Qdiscs = append(f.Pod.Qdiscs, q.egress.bucket(veth.pod.Name, mtu))
	}
	if q.ingress.rate != 0 {
		f.Host.Qdiscs = append(f.Host.Qdiscs, q.ingress.bucket(veth.host.Name, mtu))
	}
	if t, any := q.table(veth.host.Name, elementMark(in.Request.Key())); any {
		f.Host.Tables = append(f.Host.Tables, t)
	}
}

// bucket returns the token bucket filter of a direction. The burst at the peak rate is at least one packet.
func (f qosLimits) bucket(link string, mtu uint64) state.Qdisc {
	const octet, header = 8, 14
	b := limit{rate: f.rate, burst: min(f.burst, octet*math.MaxUint32)}.bucket(link)
	if f.peak != 0 {
		b.Peak, b.PeakBurst = f.peak/octet, uint32(max(f.minburst, mtu+header)) //nolint:gosec // 100 MB at most: see qosLimits
	}
	return b
}

// table returns the shared table with the elements of an interface; false if there are none.
func (q qos) table(link, mark string) (state.Table, bool) {
	t, any := qosTable(), false
	add := func(set string, e state.Element) {
		i := slices.IndexFunc(t.Sets, func(s state.Set) bool { return s.Name == set })
		e.Key, e.Comment = []string{link}, mark
		t.Sets[i].Elements, any = append(t.Sets[i].Elements, e), true
	}
	for _, dir := range []struct {
		flow           qosLimits
		packets, conns string
	}{{q.egress, packetsOut, connsOut}, {q.ingress, packetsIn, connsIn}} {
		if n := dir.flow.packets; n != 0 {
			add(dir.packets, state.Element{
				Stateful: fmt.Sprintf("limit rate over %d/second burst %d packets", n, dir.flow.packetBurst),
			})
		}
		if n := dir.flow.conns; n != 0 {
			add(dir.conns, state.Element{Stateful: fmt.Sprintf("ct count over %d", n)})
		}
	}
	return t, any
}

// qosTable returns the table without elements. Packets over a limit are dropped. A connection over the limit is dropped
// at its first packet; TCP gets a reset, because a client without an answer would retry.
//
// The output interface of a packet is known only after routing, and postrouting cannot reject. So limits on connections
// to a pod are enforced in forward and, for connections of the node itself, in output after DNAT.
func qosTable() state.Table {
	t := state.Table{Family: "inet", Name: QoSTable, Shared: true}
	for _, name := range []string{packetsOut, packetsIn, connsOut, connsIn} {
		t.Sets = append(t.Sets, state.Set{Name: name, Key: "ifname"})
	}
	const mangle, translated = -150, -50 // after conntrack; after DNAT
	t.Chains = []state.Chain{
		{Name: "prerouting", Type: "filter", Hook: "prerouting", Priority: mangle, Policy: "accept", Rules: texts(
			slices.Concat([]string{"iifname @" + packetsOut + " drop"}, rejectNew("iifname @"+connsOut))...)},
		{
			Name: "forward", Type: "filter", Hook: "forward", Priority: mangle, Policy: "accept",
			Rules: texts(rejectNew("oifname @" + connsIn)...),
		},
		{
			Name: "output", Type: "filter", Hook: "output", Priority: translated, Policy: "accept",
			Rules: texts(rejectNew("oifname @" + connsIn)...),
		},
		{
			Name: "postrouting", Type: "filter", Hook: "postrouting", Priority: mangle, Policy: "accept",
			Rules: texts("oifname @" + packetsIn + " drop"),
		},
	}
	return ownedByLast([]state.Table{t})[0]
}

// rejectNew returns the rules that reject a new connection of an interface. A packet matches at most one of them,
// because each lookup counts the connection.
func rejectNew(link string) []string {
	return []string{
		"meta l4proto tcp ct state new " + link + " reject with tcp reset",
		"meta l4proto != tcp ct state new " + link + " drop",
	}
}
