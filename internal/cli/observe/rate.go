// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/flow"
)

// talkers are two ends and what is between them, whatever the ports of the source.
type talkers struct {
	From, To string
	Protocol string
	Port     uint16
	Verdict  flow.Verdict
}

// sum is how many flows there were, and what they carried.
type sum struct {
	talkers
	flows, packets, bytes uint64
	counted               bool
}

// seenTwice reports whether the node of the source, which is one of those that answered, reports the connection, too.
func seenTwice(r flow.Record, answered map[string]bool) bool {
	return r.Direction == flow.Ingress && r.Verdict == flow.Allowed && r.From.Node != r.Node && answered[r.From.Node]
}

// rates prints at the end how many flows were between which ends.
type rates struct {
	format *printer.Format
	w      io.Writer
	sums   map[talkers]*sum
	// answered are the nodes whose flows there are.
	answered map[string]bool
}

func (t *rates) record(r flow.Record) error {
	if seenTwice(r, t.answered) {
		return nil
	}
	to := r.To
	if r.Via != nil && r.Via.Kind == flow.ServiceEnd {
		to = *r.Via
	}
	k := talkers{name(r.From), name(to), r.Protocol, to.Port, r.Verdict}
	s := t.sums[k]
	if s == nil {
		s = &sum{talkers: k}
		t.sums[k] = s
	}
	if r.Kind != flow.End && r.Kind != flow.Update {
		s.flows += r.Flows()
	}
	if r.Forth != nil && r.Back != nil {
		s.counted = true
		s.packets += r.Forth.Packets + r.Back.Packets
		s.bytes += r.Forth.Bytes + r.Back.Bytes
	}
	return nil
}

// name returns the name of an end, or its address if nothing is known to have it.
func name(e flow.Endpoint) string {
	switch e.Kind {
	case flow.OutsideEnd:
		return e.Addr.String()
	case flow.PoolEnd:
		return e.Identity.String() + " " + e.Addr.String()
	}
	return e.Identity.String()
}

func (t *rates) end() error {
	all := slices.SortedFunc(maps.Values(t.sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(b.flows, a.flows), cmp.Compare(a.From, b.From),
			cmp.Compare(a.To, b.To), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	table := printer.Table{Header: []string{"FROM", "TO", "PORT", "VERDICT", "FLOWS", "PACKETS", "BYTES"}, Keys: 4}
	for _, s := range all {
		packets, bytes := "", ""
		if s.counted {
			packets, bytes = strconv.FormatUint(s.packets, 10), strconv.FormatUint(s.bytes, 10)
		}
		table.Row("", s.From, s.To, s.port(), string(s.Verdict),
			strconv.FormatUint(s.flows, 10), packets, bytes)
	}
	return t.format.Tables(t.w, table)
}

// port is the destination's port and protocol. ICMP has no ports.
func (t talkers) port() string {
	if t.Port == 0 {
		return t.Protocol
	}
	return fmt.Sprintf("%d/%s", t.Port, t.Protocol)
}

// last passes on the last flows at the end.
type last struct {
	to  sink
	n   int
	all []flow.Record
}

func (l *last) record(r flow.Record) error {
	if l.all = append(l.all, r); len(l.all) > 2*l.n+1000 {
		l.all = slices.Clone(l.all[len(l.all)-l.n:])
	}
	return nil
}

func (l *last) end() error {
	for _, r := range l.all[max(0, len(l.all)-l.n):] {
		if err := l.to.record(r); err != nil {
			return err
		}
	}
	return l.to.end()
}
