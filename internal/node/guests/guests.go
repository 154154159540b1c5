// SPDX-License-Identifier: Apache-2.0

// Package guests serves the guests of attachments that made a tap outside weft's VMs, for a hypervisor that opens the
// tap itself. It answers their DHCP requests and router solicitations on the node's or the pod's end, and repairs the
// joins that connect a tap with its link when another program removes them.
//
// The ledger decides what is served: Changed reads one attachment again, in the background.
package guests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/guest/serve"
	"github.com/weft-net/weft/internal/guest/sockets"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Records reads the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
	Get(key model.AttachmentKey) (attach.Record, bool, error)
}

// Config configures a Server.
type Config struct {
	Records Records
	// Lock locks a sandbox.
	Lock func(ctx context.Context, container string) (release func(), err error)
	// Deletions, which may be nil, reports deleted namespaces of pods, in which no guest is served any more.
	Deletions *netns.Deletions
	Log       *slog.Logger
	After     func(time.Duration) <-chan time.Time
}

// Server serves the guests of this node's attachments. Without such attachments it only has an empty map.
type Server struct {
	cfg Config
	// run opens and serves a record's taps; tests replace it.
	run func(ctx context.Context, rec attach.Record) error

	group sync.WaitGroup
	mu    sync.Mutex
	ctx   context.Context // nil before Start
	// settling is locked while an attachment is settled; it guards open.
	settling sync.Mutex
	open     map[model.AttachmentKey]served
}

// New returns a Server, which serves no guest before Start.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, open: map[model.AttachmentKey]served{}}
	s.run = s.serve
	return s
}

// retryPause is the pause before a tap is served again after an error.
const retryPause = 5 * time.Second

// served is an attachment whose guests are served.
type served struct {
	serial int64
	stop   context.CancelFunc
	gone   chan struct{}
}

// Start serves the recorded attachments until the context ends.
func (srv *Server) Start(ctx context.Context) {
	srv.mu.Lock()
	srv.ctx = ctx // from here on Changed has an effect
	srv.mu.Unlock()
	records, err := srv.cfg.Records.List()
	if err != nil {
		srv.cfg.Log.Warn("some records could not be read, and their guests are not served", "err", err)
	}
	for _, r := range records {
		if len(r.Guests())+len(r.Joins()) > 0 {
			srv.Changed(r.Key())
		}
	}
}

// Wait returns when no guest is served any more, after the context has ended.
func (srv *Server) Wait() { srv.group.Wait() }

// Changed starts, restarts or stops an attachment's service in the background, as its record says.
func (srv *Server) Changed(key model.AttachmentKey) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.ctx == nil || srv.ctx.Err() != nil {
		return
	}
	srv.group.Go(func() { srv.settle(key) })
}

// settle starts or stops the service of an attachment, as its record says.
func (srv *Server) settle(key model.AttachmentKey) {
	srv.settling.Lock()
	defer srv.settling.Unlock()
	rec, found, err := srv.cfg.Records.Get(key)
	if err != nil {
		srv.cfg.Log.Warn("guests are not served", "attachment", key.String(), "err", err)
		return
	}
	wanted := found && rec.Stage == attach.Done && len(rec.Guests())+len(rec.Joins()) > 0
	if have, serving := srv.open[key]; serving {
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
			end := srv.watchNamespace(rec, stop)
			srv.serveUntilGone(ctx, rec)
			end()
		}
		joins.Wait()
	})
}

// serveUntilGone serves a record's guests until the context ends or their pod is gone. After an error it retries with a pause;
// the same error is logged once.
func (srv *Server) serveUntilGone(ctx context.Context, rec attach.Record) {
	last := ""
	for {
		err := srv.run(ctx, rec)
		if ctx.Err() != nil || err == nil {
			return
		}
		if err.Error() != last {
			last = err.Error()
			srv.cfg.Log.Warn("guests are not served", "attachment", rec.Key().String(), "err", err)
		}
		if errors.Is(err, netns.ErrGone) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-srv.cfg.After(retryPause):
		}
	}
}

// watchNamespace calls stop when the pod's namespace was deleted, which lives on while sockets are open in it, until end
// is called.
func (srv *Server) watchNamespace(rec attach.Record, stop func()) (end func()) {
	inPod := func(g model.GuestConfig) bool { return !g.OnNode }
	if rec.Request.Netns == "" || !slices.ContainsFunc(rec.Guests(), inPod) {
		return func() {}
	}
	return srv.cfg.Deletions.Add(rec.Request.Netns, rec.NetnsID, stop)
}

func (srv *Server) serve(ctx context.Context, rec attach.Record) error {
	all, err := openTaps(rec)
	if err != nil {
		return err
	}
	return serve.Config{Log: srv.cfg.Log}.Run(ctx, all)
}

// openTaps opens the sockets of a record's taps in the record's namespace, and not in another one at the same path.
func openTaps(rec attach.Record) ([]serve.Interface, error) {
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	switch id, err := ns.ID(); {
	case err != nil:
		return nil, err
	case id != rec.NetnsID:
		return nil, fmt.Errorf("namespace %s was replaced: %w", rec.Request.Netns, netns.ErrGone)
	}
	var all []serve.Interface
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
		all = append(all, serve.Interface{Guest: g, Sockets: s})
	}
	return all, nil
}
