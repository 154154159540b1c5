// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/observer"
)

const (
	// silence is how long an agent may send nothing; it sends a line every five seconds.
	silence = 15 * time.Second
	// answerTime is how long an agent may take for its first line.
	answerTime = 5 * time.Second
	// retryPause is the pause before an agent is asked again.
	retryPause = 2 * time.Second
	tick       = 100 * time.Millisecond
	queueSize  = 4096 // lines of all agents
)

// merger merges the streams of agents.
type merger struct {
	directory *flow.Directory
	errs      io.Writer
	emit      func(flow.Record) error
	// podsKnown, if labels decide, reports whether those that pods have now are known without the agents; nil otherwise.
	podsKnown func() bool
	// known is called with all names and labels once all agents that answer have sent theirs.
	known func(*flow.Directory) error

	since    time.Time
	waiting  []waiting
	answered map[string]bool
	keeping  bool              // an agent that has answered keeps flows; of the past only
	silent   map[string]string // the last error of nodes that do not answer now
	named    map[string]bool   // the nodes whose names are known, or that do not answer
	failed   []error
}

// newMerger returns a merger that writes what is missing to errs.
func newMerger(errs io.Writer) *merger {
	return &merger{directory: flow.NewDirectory(), errs: errs, answered: map[string]bool{}, silent: map[string]string{}}
}

// waiting is a flow that waits for earlier ones.
type waiting struct {
	flow.Record
	since time.Time
}

// message is a line of an agent, or why there are no more.
type message struct {
	node string
	flow.Line
	err  error
	over bool
}

// question is what the agents are asked.
type question struct {
	follow, tracked, why bool
	labels               bool
	since, until         time.Time
	filter               []flow.Condition // that agents can decide
}

func (q question) values() url.Values {
	v := url.Values{
		observer.ParameterFollow: {strconv.FormatBool(q.follow)}, observer.ParameterTracked: {strconv.FormatBool(q.tracked)},
	}
	if len(q.filter) > 0 {
		if b, err := json.Marshal(q.filter); err == nil { // without it they send more
			v.Set(observer.ParameterFilter, string(b))
		}
	}
	if q.labels {
		v.Set(observer.ParameterLabels, "true")
	}
	if q.why {
		v.Set(observer.ParameterWhy, "true")
	}
	if q.follow && slices.ContainsFunc(q.filter, followsStates) {
		v.Set(observer.ParameterStates, "true")
	}
	if !q.since.IsZero() {
		v.Set(observer.ParameterSince, q.since.Format(time.RFC3339Nano))
	}
	return v
}

// followsStates reports whether a condition is about changes of TCP's states, which agents report only if they are asked for.
func followsStates(c flow.Condition) bool {
	return c.Field == flow.FieldTCPState || c.Field == flow.FieldKind && slices.Contains(c.Values, string(flow.Update)) && !c.Not
}

// run merges until all streams end, or ctx.
func (m *merger) run(ctx context.Context, c agents.Cluster, q question) error {
	m.since = q.since
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := make(chan message, queueSize)
	var streams sync.WaitGroup
	for _, a := range c.Agents {
		streams.Go(func() { read(ctx, a.Node, a.Stream, q, messages) })
	}
	ended := make(chan struct{})
	go func() { streams.Wait(); close(ended) }()
	defer func() { cancel(); drain(messages, ended) }()
	m.named = map[string]bool{}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for left := len(c.Agents); left > 0; {
		select {
		case <-ctx.Done():
			return m.flush(time.Time{})
		case msg := <-messages:
			if msg.over {
				left--
			}
			m.take(msg)
			if (msg.Known || msg.err != nil) && !m.named[msg.node] {
				if m.named[msg.node] = true; len(m.named) == len(c.Agents) && len(m.answered) > 0 {
					if err := m.known(m.directory); err != nil {
						return err
					}
				}
			}
		case now := <-ticks.C:
			if !q.follow {
				continue // all at the end, sorted
			}
			if err := m.flush(now.Add(-mergeDelay)); err != nil {
				return err
			}
		}
	}
	if len(m.answered) == 0 {
		return m.unanswered()
	}
	for _, err := range m.failed {
		ui.Warn(m.errs, err)
	}
	return m.flush(time.Time{})
}

// unanswered returns why no agent has answered.
func (m *merger) unanswered() error {
	if i := slices.IndexFunc(m.failed, func(err error) bool { return errors.Is(err, store.ErrForbidden) }); i >= 0 {
		return m.failed[i] // the others are the same
	}
	return errors.Join(m.failed...)
}

// drain waits until all streams have ended.
func drain(messages <-chan message, ended <-chan struct{}) {
	for {
		select {
		case <-messages:
		case <-ended:
			return
		}
	}
}

// read reads an agent's stream. With follow it is asked again when its stream ends, as by a restart of the agent.
func read(
	ctx context.Context, node string, stream func(context.Context, adminapi.Request, func([]byte) error) error, asked question,
	to chan<- message,
) {
	send := func(m message) error {
		m.node = node
		select {
		case to <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	q := adminapi.Request{
		Method: http.MethodGet, Path: observer.RoutePath, Timeout: answerTime,
		Server: "agent with weft observe", Hint: "start the agent of node " + node + ", or upgrade it",
	}
	if asked.follow {
		q.Timeout = silence
	}
	var newest time.Time
	for {
		q.Query = asked.values()
		err := stream(ctx, q, func(document []byte) error {
			var m message
			if err := json.Unmarshal(document, &m.Line); err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
			if m.Flow != nil {
				newest = m.Flow.Time
			}
			return send(m)
		})
		if !asked.follow || ctx.Err() != nil || errors.Is(err, store.ErrForbidden) {
			_ = send(message{err: err, over: true}) // an error: there is no reader any more
			return
		}
		asked.tracked = false // those were printed; an agent that keeps flows has what came meanwhile
		if !newest.IsZero() {
			asked.since = newest.Add(1)
		}
		if err == nil {
			err = fmt.Errorf("node %s: %w", node, errEnded)
		}
		if send(message{err: err}) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// errEnded reports the end of a stream that should not end.
var errEnded = errors.New("agent has ended the stream; asking again")

// take handles a message.
func (m *merger) take(msg message) {
	switch {
	case msg.err != nil:
		if msg.over { // said at the end: alone, or with what others answered
			m.failed = append(m.failed, msg.err)
			return
		}
		if text := msg.err.Error(); m.silent[msg.node] != text { // it is asked again and again
			m.silent[msg.node] = text
			ui.Warn(m.errs, msg.err)
		}
	case msg.Begin != nil:
		if m.silent[msg.node] != "" {
			delete(m.silent, msg.node)
			ui.Warn(m.errs, fmt.Errorf("node %s answers again", msg.node))
		}
		m.answered[msg.Begin.Node] = true
		m.directory.AddNode(msg.Begin.Node, msg.Begin.Addrs...)
		m.past(*msg.Begin)
		m.unlabeled(*msg.Begin)
		for _, note := range msg.Begin.Notes {
			ui.Warn(m.errs, fmt.Errorf("node %s: %s", msg.Begin.Node, note))
		}
	case msg.Holder != nil:
		m.directory.AddHolder(*msg.Holder)
	case msg.Lost != nil:
		_, _ = fmt.Fprintln(m.errs, msg.Lost.Text()) // nothing else can be done about stderr
	case msg.Flow != nil:
		m.directory.AddLabels(msg.Flow)
		m.waiting = append(m.waiting, waiting{*msg.Flow, time.Now()})
	}
}

// unlabeled reports an agent that does not report the labels that were asked for.
func (m *merger) unlabeled(b flow.Begin) {
	switch {
	case m.podsKnown == nil || b.Labels:
	case m.podsKnown():
		ui.Warn(m.errs, fmt.Errorf("node %s: its agent does not report labels of pods: those that they have now count; upgrade it", b.Node))
	default:
		ui.Warn(m.errs, fmt.Errorf("node %s: its agent does not report labels of pods: no filter of labels selects them; upgrade it", b.Node))
	}
}

// past reports what an agent has not kept of the past that was asked for.
func (m *merger) past(b flow.Begin) {
	switch {
	case m.since.IsZero():
		return
	case b.Level == flow.LevelOff:
		ui.Warn(m.errs, fmt.Errorf("node %s keeps no flows: set observe.level in the agents' configuration", b.Node))
		return
	case !b.From.IsZero():
		ui.Warn(m.errs, fmt.Errorf("node %s has kept flows since %s only", b.Node, b.From.Local().Format(time.TimeOnly)))
	}
	m.keeping = true
}

// flush emits the flows that have waited since before a time, in the order of their own times; a zero time is all.
func (m *merger) flush(before time.Time) error {
	due := len(m.waiting)
	if !before.IsZero() {
		due = 0
		for due < len(m.waiting) && m.waiting[due].since.Before(before) {
			due++
		}
	}
	ready := m.waiting[:due]
	slices.SortStableFunc(ready, func(a, b waiting) int { return a.Time.Compare(b.Time) })
	for _, w := range ready {
		m.directory.Complete(&w.Record)
		if err := m.emit(w.Record); err != nil {
			return err
		}
	}
	m.waiting = slices.Clone(m.waiting[due:])
	return nil
}
