// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// wires speaks to the guests on wires that attachments have made, where nobody else does: no machine of weft's is there, only a
// hypervisor that has found a tap. Without such attachments it is nothing but an empty map.
type wires struct {
	ledger *ledger.Ledger
	log    *slog.Logger

	group sync.WaitGroup
	mu    sync.Mutex
	ctx   context.Context // nil before the agent has taken up what one before it left
	// turn is held while an attachment is looked at; open is its holder's.
	turn sync.Mutex
	open map[model.AttachmentKey]served
	// after gives a channel that fires after a while. run opens and serves a record's wires; nil does so: for tests.
	after func(time.Duration) <-chan time.Time
	run   func(ctx context.Context, rec attach.Record) error
	// hold waits for a sandbox's turn.
	hold func(ctx context.Context, container string) (release func(), err error)
}

// wireAgain is how long it is waited until wires are served again whose serving has ended.
const wireAgain = 5 * time.Second

// served is a wire that is spoken on.
type served struct {
	serial int64
	stop   context.CancelFunc
	gone   chan struct{}
}

// start takes up what is recorded; it ends with the context.
func (w *wires) start(ctx context.Context) {
	w.open = map[model.AttachmentKey]served{}
	w.mu.Lock()
	w.ctx = ctx // from here on others look, too
	w.mu.Unlock()
	records, err := w.ledger.List()
	if err != nil {
		w.log.Warn("some guests are not spoken to", "err", err)
	}
	for _, r := range records {
		if len(r.Guests())+len(r.Joins()) > 0 {
			w.changed(r.Key())
		}
	}
}

// wait returns when nothing is spoken any more; the context has ended.
func (w *wires) wait() { w.group.Wait() }

// changed looks at an attachment again, behind the caller's back.
func (w *wires) changed(key model.AttachmentKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil || w.ctx.Err() != nil {
		return
	}
	w.group.Go(func() { w.settle(key) })
}

// settle brings what is spoken on an attachment's wires to what its record says.
func (w *wires) settle(key model.AttachmentKey) {
	w.turn.Lock()
	defer w.turn.Unlock()
	rec, found, err := w.ledger.Get(key)
	if err != nil {
		w.log.Warn("guests are not spoken to", "attachment", key.String(), "err", err)
		return
	}
	wanted := found && rec.Stage == attach.Done && len(rec.Guests())+len(rec.Joins()) > 0
	if have, speaks := w.open[key]; speaks {
		if wanted && have.serial == rec.Serial {
			return
		}
		have.stop()
		<-have.gone
		delete(w.open, key)
	}
	if !wanted || w.ctx.Err() != nil {
		return
	}
	w.begin(rec)
}

func (w *wires) begin(rec attach.Record) {
	ctx, stop := context.WithCancel(w.ctx)
	s := served{serial: rec.Serial, stop: stop, gone: make(chan struct{})}
	w.open[rec.Key()] = s
	w.group.Go(func() {
		defer close(s.gone)
		defer stop()
		var joins sync.WaitGroup
		if len(rec.Joins()) > 0 {
			joins.Go(func() { w.rejoin(ctx, rec) })
		}
		if len(rec.Guests()) > 0 {
			w.speak(ctx, rec)
		}
		joins.Wait()
	})
}

// speak serves a record's wires until the context ends or their pod is gone. What cannot be served is served again after a pause;
// what is wrong is said once.
func (w *wires) speak(ctx context.Context, rec attach.Record) {
	run := w.run
	if run == nil {
		run = w.serve
	}
	said := ""
	for {
		err := run(ctx, rec)
		if ctx.Err() != nil || err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			w.log.Warn("guests are not spoken to", "attachment", rec.Key().String(), "err", err)
		}
		if errors.Is(err, netns.ErrGone) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.after(wireAgain):
		}
	}
}

func (w *wires) serve(ctx context.Context, rec attach.Record) error {
	all, err := openWires(rec)
	if err != nil {
		return err
	}
	return serve.Config{Log: w.log}.Run(ctx, all)
}

// openWires opens the sockets of a record's wires in the pod that it is about, and not in another one at the same path.
func openWires(rec attach.Record) ([]serve.Wire, error) {
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	switch id, err := ns.ID(); {
	case err != nil:
		return nil, err
	case id != rec.NetnsID:
		return nil, fmt.Errorf("namespace %s is another one by now: %w", rec.Request.Netns, netns.ErrGone)
	}
	var all []serve.Wire
	for _, g := range rec.Guests() {
		where := ns
		if g.OnNode {
			where = nil
		}
		s, err := sockets.Open(where, g)
		if err != nil {
			for _, w := range all {
				_ = w.Sockets.Close()
			}
			return nil, err
		}
		all = append(all, serve.Wire{Guest: g, Sockets: s})
	}
	return all, nil
}
