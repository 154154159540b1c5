// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/web/view"
)

// flowsIdle is how long flows are observed after the last page that shows them: agents observe only while they are asked.
const flowsIdle = 10 * time.Second

// pageFlows observes the flows of a cluster while a page shows them.
type pageFlows struct {
	// observe runs until its context ends, which ends with the page's.
	observe func(used func() time.Time, log *lockedLog)

	mu   sync.Mutex
	used time.Time // by a page
	log  *lockedLog
}

// lockedLog is a log that is written while it is read.
type lockedLog struct {
	mu  sync.Mutex
	log *view.FlowLog
	// err is why the observation has ended.
	err   error
	ended bool
}

func newPageFlows(ctx context.Context, source *agents.Source) *pageFlows {
	return &pageFlows{observe: func(used func() time.Time, log *lockedLog) { observeFlows(ctx, source, used, log) }}
}

// observeFlows observes until no page has used the log for a while.
func observeFlows(ctx context.Context, source *agents.Source, used func() time.Time, log *lockedLog) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for ctx.Err() == nil && time.Since(used()) < flowsIdle {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		cancel()
	}()
	c, err := source.Open(ctx)
	if err == nil {
		err = observe.Follow(ctx, c, log, func(r flow.Record) {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.log.Add(r, time.Now())
		})
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	log.err, log.ended = err, true
}

// Write adds lines about what is missing.
func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			l.log.Note(strings.TrimPrefix(line, "weft: "))
		}
	}
	return len(b), nil
}

// current returns the log, and begins one if none is written.
func (f *pageFlows) current() *lockedLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.used = now
	if f.log != nil {
		f.log.mu.Lock()
		ended := f.log.ended
		f.log.mu.Unlock()
		if !ended {
			return f.log
		}
	}
	log := &lockedLog{log: view.NewFlowLog(now)}
	if f.log == nil || f.log.err == nil { // after an error the page shows it once, and asks again with the next view
		f.log = log
		go f.observe(f.lastUse, log)
		return log
	}
	failed := f.log
	f.log = nil
	return failed
}

func (f *pageFlows) lastUse() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.used
}

func (f *pageFlows) view(_ context.Context, q url.Values) (any, error) {
	l := f.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	return l.log.View(view.FlowFilter{
		Pod: q.Get("pod"), Namespace: q.Get("namespace"), Port: q.Get("port"), Verdict: q.Get("verdict"),
	}, time.Now())
}

func (f *pageFlows) pairs() []view.Pair {
	l := f.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Pairs(time.Now())
}
