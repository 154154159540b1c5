// SPDX-License-Identifier: Apache-2.0

// Package export sends flows to programs that keep them: a file of JSON lines, a collector of IPFIX, a server of OTLP logs.
// A receiver that is away costs bounded memory: what the queue cannot hold is counted as lost.
package export

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// Limits of an exporter.
const (
	// queueSize is how many flows wait while the receiver is away.
	queueSize = 16384
	// batchSize is how many flows are sent at once, and batchPeriod how long the first of them waits for others.
	batchSize, batchPeriod = 512, time.Second
	// retryFirst and retryLast are the shortest and the longest time between two attempts.
	retryFirst, retryLast = 500 * time.Millisecond, 30 * time.Second
	// lastAttempt is the time to send what is queued when the agent ends.
	lastAttempt = time.Second / 2
)

// ErrRefused is an error of a receiver that does not take a batch, and would not take it later.
var ErrRefused = errors.New("refused")

// Sink is a receiver.
type Sink interface {
	// Write sends flows and returns how many of them, from the first, are sent. The others are sent again later, but for
	// those of an ErrRefused.
	Write(ctx context.Context, batch []flow.Record) (sent int, err error)
	Close() error
	// String names the receiver in logs and metrics.
	String() string
}

// Exporter sends flows to a sink, in the order in which they were put.
type Exporter struct {
	sink       Sink
	log        *slog.Logger
	queue      chan flow.Record
	sent, lost atomic.Uint64
	// retry is the time before the second attempt.
	retry time.Duration
}

// New creates an exporter. Nothing is sent before Run.
func New(sink Sink, log *slog.Logger) *Exporter {
	return &Exporter{sink: sink, log: log.With("receiver", sink.String()), queue: make(chan flow.Record, queueSize), retry: retryFirst}
}

// Put queues a flow. It does not wait: a flow that the queue has no room for is lost.
func (e *Exporter) Put(r flow.Record) {
	select {
	case e.queue <- r:
	default:
		e.lost.Add(1)
	}
}

// Sent returns how many flows were sent.
func (e *Exporter) Sent() uint64 { return e.sent.Load() }

// Lost returns how many flows the queue had no room for, the receiver refused, or were queued at the end.
func (e *Exporter) Lost() uint64 { return e.lost.Load() }

// String names the receiver.
func (e *Exporter) String() string { return e.sink.String() }

// Run sends until ctx ends, then what is queued if that is quick, and closes the sink. The error is always nil.
func (e *Exporter) Run(ctx context.Context) error {
	var batch []flow.Record
	for {
		more := e.gather(ctx, &batch)
		if ctx.Err() != nil || more && !e.send(ctx, &batch) {
			e.end(batch)
			return nil
		}
	}
}

// gather waits for a flow, and collects those that follow shortly. It reports whether there are any.
func (e *Exporter) gather(ctx context.Context, batch *[]flow.Record) bool {
	select {
	case <-ctx.Done():
		return false
	case r := <-e.queue:
		*batch = append(*batch, r)
	}
	limit := time.NewTimer(batchPeriod)
	defer limit.Stop()
	for len(*batch) < batchSize {
		select {
		case <-ctx.Done():
			return false
		case <-limit.C:
			return true
		case r := <-e.queue:
			*batch = append(*batch, r)
		}
	}
	return true
}

// send sends a batch, as often as it takes. It returns false if ctx ends before.
func (e *Exporter) send(ctx context.Context, batch *[]flow.Record) bool {
	away := false
	for wait := e.retry; ; wait = min(2*wait, retryLast) {
		err := e.write(ctx, batch)
		if len(*batch) == 0 {
			if away {
				e.log.Info("receiver of flows is back", "lost", e.Lost())
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if !away {
			away = true
			e.log.Warn("receiver of flows does not take them", "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
}

// write makes one attempt, and leaves what must be sent again in the batch.
func (e *Exporter) write(ctx context.Context, batch *[]flow.Record) error {
	n, err := e.sink.Write(ctx, *batch)
	e.sent.Add(uint64(n))
	*batch = (*batch)[n:]
	if errors.Is(err, ErrRefused) {
		e.lost.Add(uint64(len(*batch)))
		e.log.Warn("receiver refuses flows", "flows", len(*batch), "err", err)
		*batch = nil
	}
	if len(*batch) == 0 {
		*batch = nil
	}
	return err
}

// end makes a last attempt for what is left, and closes the sink. What it cannot send is logged, and no error: the agent has
// done its work.
func (e *Exporter) end(batch []flow.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), lastAttempt)
	defer cancel()
	var err error
	for err == nil && ctx.Err() == nil {
		for len(batch) < batchSize && len(e.queue) > 0 {
			batch = append(batch, <-e.queue)
		}
		if len(batch) == 0 {
			break
		}
		if err = e.write(ctx, &batch); errors.Is(err, ErrRefused) {
			err = nil
		}
	}
	left := len(batch) + len(e.queue)
	e.lost.Add(uint64(left))
	if err = errors.Join(err, e.sink.Close()); err != nil {
		e.log.Warn("receiver did not take the last flows", "flows", left, "err", err)
	}
}
