// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/conntrack"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/plural"
)

const (
	// queueSize is how many lines wait for the reader of a stream, and reserved how many of these are no flows.
	queueSize, reserved = 8192, 512
	// queuedSize is how many flows wait for all readers, about 700 bytes each, and maxReaders how many there may be.
	queuedSize, maxReaders = 4 * queueSize, 64
	// lossPeriod is the time between two lines about lost flows, and alivePeriod between lines without any content.
	lossPeriod, alivePeriod = time.Second, 5 * time.Second
)

// Sink takes the lines of a stream.
type Sink interface {
	// Send takes a line; it may wait until Flush.
	Send(l flow.Line) error
	Flush() error
}

// Lines is the Sink of a response.
type Lines struct{ *adminapi.Lines }

// Send implements Sink.
func (l Lines) Send(line flow.Line) error { return l.Lines.Send(line) }

// unlabeled is a Sink of lines without labels.
type unlabeled struct{ Sink }

// Send implements Sink.
func (u unlabeled) Send(line flow.Line) error { return u.Sink.Send(line.WithoutLabels()) }

// stream is one reader.
type stream struct {
	why     bool
	states  bool // changes of TCP's states are wanted
	filter  flow.Filter
	events  *conntrack.Listener
	begin   flow.Line
	holders []flow.Holder
	past    []flow.Line
	queue   chan flow.Line
	dropped atomic.Uint64 // flows that the queue had no room for
	broken  atomic.Bool   // a line is missing that is not a flow
	// reported are the lost flows that the reader knows of.
	reported flow.Lost
}

func newStream(q query) *stream {
	return &stream{why: q.why, states: q.states && q.follow, filter: q.filter, queue: make(chan flow.Line, queueSize)}
}

// wants reports whether the filter selects a line.
func (s *stream) wants(l flow.Line) bool { return l.Flow == nil || s.filter.Match(*l.Flow, nil) }

// put queues a line. A flow is counted as lost if so many lines wait. Other lines are few, and the names of what follows
// depend on them: without room for one of them, which is kept free for them, the stream ends.
func (s *stream) put(l flow.Line, most int) {
	if !s.wants(l) {
		return
	}
	if l.Flow != nil && len(s.queue) >= most {
		s.dropped.Add(1)
		return
	}
	select {
	case s.queue <- l:
	default:
		s.broken.Store(true)
	}
}

// loss returns the flows that were lost since the last call, or nil.
func (o *Observer) loss(s *stream) *flow.Lost {
	o.mu.Lock()
	sum := o.source.lost()
	o.mu.Unlock()
	if !s.states {
		sum.Update = 0
	}
	sum.Queue = s.dropped.Load()
	lost := sum.Since(s.reported)
	s.reported = sum
	if lost.Sum() == 0 {
		return nil
	}
	lost.Time, lost.Node = o.cfg.Now(), o.cfg.Node
	return &lost
}

// query is what a reader asks for.
type query struct {
	follow, tracked, why bool
	states, labels       bool
	since                time.Time // zero: nothing of the past
	filter               flow.Filter
}

func parseQuery(values url.Values) (q query, err error) {
	q = query{follow: values.Get(ParameterFollow) == "true", tracked: values.Get(ParameterTracked) == "true"}
	q.why, q.states = values.Get(ParameterWhy) == "true", values.Get(ParameterStates) == "true"
	q.labels = values.Get(ParameterLabels) == "true"
	if filter := values.Get(ParameterFilter); filter != "" {
		var conditions []flow.Condition
		if err := json.Unmarshal([]byte(filter), &conditions); err != nil {
			return q, model.Errorf(model.CodeDecode, "", "filter: %w", err)
		}
		if q.filter, err = flow.NewFilter(conditions); err != nil {
			return q, err
		}
	}
	if since := values.Get(ParameterSince); since != "" {
		if q.since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			return q, model.Errorf(model.CodeInvalidConf, "for example 2026-01-02T15:04:05Z", "since %q: %w", since, err)
		}
	}
	return q, nil
}

// stream serves one reader: the addresses of this node's endpoints, the connections that are tracked now, and each event
// from then on, as far as they are asked for.
func (o *Observer) stream(ctx context.Context, q query, lines Sink) error {
	if err := o.admit(); err != nil {
		return err
	}
	defer o.leave()
	if !q.labels {
		lines = unlabeled{lines}
	}
	notes := o.untracked(ctx)
	s, err := o.open(q)
	if err != nil {
		return err
	}
	defer o.close(s)
	s.begin.Begin.Notes = append(notes, s.begin.Begin.Notes...)
	if err := lines.Send(s.begin); err != nil {
		return err
	}
	for _, h := range s.holders {
		if err := lines.Send(flow.Line{Holder: &h}); err != nil {
			return err
		}
	}
	for _, l := range s.past {
		if !s.wants(l) {
			continue
		}
		if err := lines.Send(l); err != nil {
			return err
		}
	}
	if q.tracked {
		if err := o.dump(s, lines); err != nil {
			return err
		}
	}
	if err := lines.Send(flow.Line{Known: true}); err != nil || !q.follow {
		return err
	}
	return o.follow(ctx, s, lines)
}

// admit counts a reader. Each has sockets and a queue: their number is limited.
func (o *Observer) admit() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.readers >= maxReaders {
		return model.Errorf(model.CodeTryAgain, "end a weft observe that is not needed any more",
			"node %s has %d readers of flows already", o.cfg.Node, o.readers)
	}
	o.readers++
	return nil
}

func (o *Observer) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.readers--
}

// untracked returns which connections are not observed, because no rule of the node tracks them, or because they bypass its
// IP layer. Tracking is never switched on.
func (o *Observer) untracked(ctx context.Context) (notes []string) {
	for _, v6 := range []bool{false, true} {
		family := "IPv4"
		if v6 {
			family = "IPv6"
		}
		if tracks, err := o.source.feed.Tracks(ctx, o.cfg.NS, v6); err == nil && !tracks { // or the node has no such family
			notes = append(notes, family+" connections are not observed: no rule of the node's packet filters tracks them")
		}
	}
	records, err := o.cfg.Records.List()
	if err != nil {
		o.cfg.Log.Warn("interfaces of some endpoints are not known", "err", err)
	}
	var bypass []string
	for _, rec := range records {
		if end, ok := rec.Endpoint(); ok && (end.Tap || end.Device != "" || end.Network != "" && end.HostEnd != model.HostEndRouted) {
			bypass = append(bypass, end.Pod.String()+" "+end.IfName)
		}
	}
	if len(bypass) > 0 {
		const named = 3
		text := strings.Join(bypass[:min(len(bypass), named)], ", ")
		if len(bypass) > named {
			text += " and " + plural.Count(len(bypass)-named, "other", "others")
		}
		notes = append(notes, "interfaces that may bypass the node's connection tracking: "+text)
	}
	return notes
}

// dump sends the connections that are tracked now.
func (o *Observer) dump(s *stream, lines Sink) error {
	var failed error
	err := conntrack.Dump(o.cfg.NS, func(e conntrack.Event) {
		if failed != nil {
			return
		}
		o.mu.Lock()
		if o.names.isOwn(&e) {
			o.mu.Unlock()
			return
		}
		one := o.names.entry(&e, o.cfg.Now())
		o.mu.Unlock()
		r := one.record()
		if l := (flow.Line{Flow: &r}); s.wants(l) {
			failed = lines.Send(l)
		}
	})
	if failed != nil {
		return failed
	}
	return err
}

// follow sends events until ctx ends.
func (o *Observer) follow(ctx context.Context, s *stream, lines Sink) error {
	loss, alive := time.NewTicker(lossPeriod), time.NewTicker(alivePeriod)
	defer loss.Stop()
	defer alive.Stop()
	for {
		if len(s.queue) == 0 {
			if err := lines.Flush(); err != nil {
				return err
			}
		}
		var l flow.Line
		select {
		case <-ctx.Done():
			return nil
		case l = <-s.queue:
		case <-alive.C:
		case <-loss.C:
			if l.Lost = o.loss(s); l.Lost == nil {
				continue
			}
		case <-s.events.Done():
			return errStopped
		}
		if s.broken.Load() {
			return errSlow
		}
		if err := lines.Send(l); err != nil {
			return err
		}
	}
}
