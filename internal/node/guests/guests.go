// SPDX-License-Identifier: Apache-2.0

// Package guests serves the guests of attachments that made a tap where no VM of weft's is: a hypervisor that found the
// tap itself. It answers their DHCP and router solicitations on the node's or the pod's end, and restores the joins
// that connect a tap with its link when something removes them.
//
// What is served follows the ledger: Changed looks at one attachment again, in the background.
package guests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
	Get(key model.AttachmentKey) (attach.Record, bool, error)
}

// Config is a Server's.
type Config struct {
	Records Records
	// Hold locks a sandbox.
	Hold  func(ctx context.Context, container string) (release func(), err error)
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Server serves the guests of this node's attachments. Without such attachments it is nothing but an empty map.
type Server struct {
	cfg Config
	// run opens and serves a record's taps; tests replace it.
	run func(ctx context.Context, rec attach.Record) error

	group sync.WaitGroup
	mu    sync.Mutex
	ctx   context.Context // nil before Start
	// turn is held while an attachment is looked at; open is its holder's.
	turn sync.Mutex
	open map[model.AttachmentKey]served
}

// New returns a Server, which serves nothing before Start.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, open: map[model.AttachmentKey]served{}}
	s.run = s.serve
	return s
}

// serveAgain is the pause before a tap is served again whose serving failed.
const serveAgain = 5 * time.Second

// served is an attachment whose guests are served.
type served struct {
	serial int64
	stop   context.CancelFunc
	gone   chan struct{}
}

// Start serves what is recorded, until the context ends.
func (srv *Server) Start(ctx context.Context) {
	srv.mu.Lock()
	srv.ctx = ctx // from here on others look, too
	srv.mu.Unlock()
	records, err := srv.cfg.Records.List()
	if err != nil {
		srv.cfg.Log.Warn("some guests are not spoken to", "err", err)
	}
	for _, r := range records {
		if len(r.Guests())+len(r.Joins()) > 0 {
			srv.Changed(r.Key())
		}
	}
}

// Wait returns when nothing is served any more, once the context has ended.
func (srv *Server) Wait() { srv.group.Wait() }

// Changed looks at an attachment again, in the background.
func (srv *Server) Changed(key model.AttachmentKey) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.ctx == nil || srv.ctx.Err() != nil {
		return
	}
	srv.group.Go(func() { srv.settle(key) })
}

// settle starts or stops the serving of an attachment's guests, as its record says.
func (srv *Server) settle(key model.AttachmentKey) {
	srv.turn.Lock()
	defer srv.turn.Unlock()
	rec, found, err := srv.cfg.Records.Get(key)
	if err != nil {
		srv.cfg.Log.Warn("guests are not spoken to", "attachment", key.String(), "err", err)
		return
	}
	wanted := found && rec.Stage == attach.Done && len(rec.Guests())+len(rec.Joins()) > 0
	if have, speaks := srv.open[key]; speaks {
		if wanted && have.serial == rec.Serial {
			return
		}
		have.stop()
		<-have.gone
		delete(srv.open, key)
	}
	if !wanted || srv.ctx.Err() != nil {
		return
	}
	srv.begin(rec)
}

func (srv *Server) begin(rec attach.Record) {
	ctx, stop := context.WithCancel(srv.ctx)
	s := served{serial: rec.Serial, stop: stop, gone: make(chan struct{})}
	srv.open[rec.Key()] = s
	srv.group.Go(func() {
		defer close(s.gone)
		defer stop()
		var joins sync.WaitGroup
		if len(rec.Joins()) > 0 {
			joins.Go(func() { srv.rejoin(ctx, rec) })
		}
		if len(rec.Guests()) > 0 {
			srv.keep(ctx, rec)
		}
		joins.Wait()
	})
}

// keep serves a record's guests until the context ends or their pod is gone. What cannot be served is served again
// after a pause; what is wrong is said once.
func (srv *Server) keep(ctx context.Context, rec attach.Record) {
	said := ""
	for {
		err := srv.run(ctx, rec)
		if ctx.Err() != nil || err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			srv.cfg.Log.Warn("guests are not spoken to", "attachment", rec.Key().String(), "err", err)
		}
		if errors.Is(err, netns.ErrGone) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-srv.cfg.After(serveAgain):
		}
	}
}

func (srv *Server) serve(ctx context.Context, rec attach.Record) error {
	all, err := openTaps(rec)
	if err != nil {
		return err
	}
	return serve.Config{Log: srv.cfg.Log}.Run(ctx, all)
}

// openTaps opens the sockets of a record's taps in the pod that it is about, and not in another one at the same path.
func openTaps(rec attach.Record) ([]serve.Wire, error) {
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
