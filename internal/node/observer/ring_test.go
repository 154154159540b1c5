// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// The ring has the last lines in their order, and sums of those before.
func TestRing(t *testing.T) {
	var r ring
	begin := time.Unix(1500000000, 0) // begins a period
	at := func(i int) time.Time { return begin.Add(time.Duration(i) * time.Millisecond) }
	const added = ringSize + 10
	for i := range added {
		if r.add(entryOf(flow.Record{Time: at(i), From: flow.Endpoint{Port: uint16(i)}})); i == ringSize-1 {
			if all, from := r.since(at(0)); len(all) != ringSize || !from.IsZero() {
				t.Errorf("full: %d lines since %s", len(all), from)
			}
		}
	}
	all, from := r.since(at(0))
	if len(all) != ringSize+1 || !from.IsZero() || !all[1].Flow.Time.Equal(at(10)) ||
		!all[ringSize].Flow.Time.Equal(at(added-1)) {
		t.Errorf("%d lines since %s", len(all), from)
	}
	if sum := all[0].Flow; sum.Count != 10 || sum.From.Port != 0 || !sum.Time.Equal(begin) ||
		!sum.Until.Equal(begin.Add(sumPeriod)) {
		t.Errorf("sum: %+v", sum)
	}
	if all, from := r.since(begin.Add(sumPeriod)); len(all) != 0 || !from.IsZero() {
		t.Errorf("later: %d lines since %s", len(all), from)
	}
}

// Sums are bounded, and each flow is in one of them, however many ends there are. Those of the last minutes are kept.
func TestSumsAreBounded(t *testing.T) {
	var s sums
	begin, made := time.Unix(1500000000, 0), uint64(0)
	const periods = 100
	for p := range periods {
		at := begin.Add(time.Duration(p) * sumPeriod)
		for i := range 1000 {
			from := flow.Identity{Kind: flow.PodEnd, Name: fmt.Sprintf("scan/p%d-%d", p, i)}
			e := entryOf(flow.Record{
				Time: at, Kind: flow.New, Verdict: flow.Allowed, From: flow.Endpoint{Identity: from},
				Decisions: []flow.Decision{{Direction: flow.Egress, Allowed: true, Policies: []model.PolicyKey{{Name: "a"}}}},
			})
			s.add(&e)
			made++
		}
		s.add(&entry{at: at, lost: &flow.Lost{Time: at, New: 3}})
		made += 3
		if s.count > maxSums+maxOthers*len(s.periods) {
			t.Fatalf("%d sums", s.count)
		}
	}
	all, from := s.since(begin)
	now := begin.Add((periods - 1) * sumPeriod)
	if from.IsZero() || now.Sub(from) < 5*time.Minute-sumPeriod {
		t.Errorf("sums are kept since %s, now is %s", from, now)
	}
	kept, others := uint64(0), uint64(0)
	for _, l := range all {
		if l.Lost != nil {
			kept += l.Lost.New
			continue
		}
		kept += l.Flow.Flows()
		if l.Flow.From.Kind == flow.OtherEnd {
			others += l.Flow.Flows()
		}
	}
	gone := uint64(from.Sub(begin)/sumPeriod) * 1003
	if kept+gone != made {
		t.Errorf("%d are kept and %d are gone of %d", kept, gone, made)
	}
	if others == 0 {
		t.Error("no flow is among others: nothing is tested")
	}
}

// Packets of connections that ended are added up.
func TestSumsCount(t *testing.T) {
	var s sums
	at := time.Unix(1500000001, 0)
	for i := range 3 {
		r := flow.Record{Time: at, Kind: flow.End, From: flow.Endpoint{Port: uint16(i)}}
		if i > 0 { // the first one began before the kernel counted
			r.Forth, r.Back = &flow.Counters{Packets: 1, Bytes: 10}, &flow.Counters{Packets: 2, Bytes: 20}
		}
		e := entryOf(r)
		s.add(&e)
	}
	all, _ := s.since(at)
	if len(all) != 1 || all[0].Flow.Count != 3 || *all[0].Flow.Forth != (flow.Counters{Packets: 2, Bytes: 20}) ||
		*all[0].Flow.Back != (flow.Counters{Packets: 4, Bytes: 40}) {
		t.Errorf("%+v", all)
	}
}
