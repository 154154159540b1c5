// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/failpoint"
	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/multuslog"
)

// Limits of the workers: spareWorkers wait for callers, and at most maxWorkers calls run in parallel. Further callers
// wait in the socket's backlog, and weft-cni returns "try again" if that takes too long.
const (
	spareWorkers = 2
	busyWorkers  = 8 // with more the scheduler is late
	maxWorkers   = 256
)

// grace is how long the running calls may take when the agent stops.
const grace = 20 * time.Second

// Config configures a Server.
type Config struct {
	Socket   string
	Attacher Attacher
	Records  Records
	Log      *slog.Logger
	// Now is the clock of the queue's retries.
	Now func() time.Time
	// Networks resolves the networks that pods select; nil: only the configuration of a call names networks.
	Networks *multinet.Resolver
	// Reporter, which may be nil, receives the pods' network status and events.
	Reporter multinet.Reporter
	// PodIPs writes Calico's annotations with the pods' addresses, too.
	PodIPs bool
	// Pods, which may be nil, is the feed of running pods' annotations.
	Pods Pods
	// Own are the namespaces that are no container's: the agent's, and the host's if that is another.
	Own []*netns.NS
	// Ready is called when calls are served; may be nil.
	Ready func()
	// Fit returns why the node can take no new pods whatever their networks, for STATUS; may be nil.
	Fit func() error
	// Called is called after every call, with its error; may be nil.
	Called func(verb string, err error, took time.Duration)
	// PluginNames are the plugins under whose names weft-cni may be executed.
	PluginNames []string
	// Verbs are the requests other than CNI's verbs, by name.
	Verbs map[string]Verb
	// Events, which may be nil, report new entries of the queue.
	Events *inotify.Instance
	// Failpoint, which may be nil, is the queue's failpoint.
	Failpoint failpoint.Hook
}

// Server serves CNI calls: it accepts them, and verbs does them. A follower changes the networks of running pods.
type Server struct {
	cfg      *Config
	log      *slog.Logger
	socket   *listener
	watchdog *watchdog
	reporter *statusReporter
	pods     *podTable
	verbs    *verbs
	follower *follower

	// calls is the parent of every call's context; stop cancels all of them.
	calls context.Context
	stop  context.CancelFunc

	workers sync.WaitGroup
	// waiting counts the workers in accept, all counts those that exist; both may be read while they change.
	waiting, all atomic.Int32
	closing      atomic.Bool
	// reading counts the workers that wait for a request.
	reading atomic.Int32
	parked  parked
}

// New makes a server and takes over the socket; from then on callers wait for Run.
func New(c Config) (*Server, error) {
	cfg, log, networks := &c, c.Log.With("component", "cniserver"), c.Networks
	if networks == nil {
		networks = &multinet.Resolver{}
	}
	events, pods := newStatusReporter(cfg.Reporter, cfg.PodIPs, log), &podTable{}
	vs := &verbs{cfg: cfg, log: log, networks: networks, reporter: events, pods: pods}
	vs.multusLog = &multuslog.Log{Log: log, Now: cfg.Now}
	s := &Server{
		cfg: cfg, log: log, watchdog: newWatchdog(), reporter: events, pods: pods, parked: newParked(), verbs: vs,
		follower: &follower{cfg: cfg, log: log, networks: networks, reporter: events, pods: pods, verbs: vs},
	}
	for _, ns := range cfg.Own {
		id, err := ns.ID()
		if err != nil {
			return nil, fmt.Errorf("cniserver: %w", err)
		}
		vs.own = append(vs.own, id)
	}
	var err error
	if s.socket, err = listen(cfg.Socket); err != nil {
		return nil, err
	}
	if vs.queue, err = openQueue(wire.QueueDir(cfg.Socket), cfg.Events, s.log, cfg.Now, vs.replay); err != nil {
		return nil, errors.Join(err, s.socket.close())
	}
	vs.queue.fail = cfg.Failpoint
	s.calls, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Run serves calls and the queue until ctx ends. Then it waits for the running calls and closes the socket.
func (s *Server) Run(ctx context.Context) error {
	watch, stopWatch := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	helpers.Go(func() { s.watchdog.run(watch) })
	helpers.Go(func() { s.verbs.queue.run(ctx) })
	helpers.Go(s.pings)
	helpers.Go(func() { s.reporter.run(watch) })
	if s.cfg.Pods != nil {
		records, err := s.cfg.Records.List()
		if err != nil {
			s.log.Error("pods from before the restart could not be read", "err", err)
		}
		s.pods.remember(records)
		helpers.Go(func() { s.follower.follow(ctx) })
	}
	for range spareWorkers {
		s.spawnWorker()
	}
	if s.cfg.Ready != nil {
		s.cfg.Ready()
	}
	<-ctx.Done()
	s.closing.Store(true)
	s.socket.wake()
	s.drain()
	s.verbs.multusLog.Wait()
	stopWatch()
	helpers.Wait()
	return s.socket.close()
}

// InProgress returns the number of calls that are accepted and not answered.
func (s *Server) InProgress() int { return s.watchdog.running() }

// QueuedDELs returns the number of DELs in the queue, with those whose retry is not due.
func (s *Server) QueuedDELs() int { return s.verbs.queue.length() }

// drain waits until the workers are gone; calls that outlast the grace are canceled.
func (s *Server) drain() {
	late := time.AfterFunc(grace, s.stop)
	s.workers.Wait()
	late.Stop()
	s.stop()
}

// spawnWorker starts one more worker.
func (s *Server) spawnWorker() {
	s.waiting.Add(1)
	s.all.Add(1)
	s.workers.Go(s.work)
}

// work accepts and handles calls until enough other workers wait.
func (s *Server) work() {
	defer s.all.Add(-1)
	buf := make([]byte, 16<<10)
	for {
		fd, err := accept(s.socket.fd)
		if err != nil {
			if s.closing.Load() {
				s.waiting.Add(-1)
				return
			}
			s.pause("accept failed", err)
			continue
		}
		if s.waiting.Add(-1) == 0 && s.all.Load() < maxWorkers {
			s.spawnWorker()
		}
		s.answerPingsIfBusy()
		s.handle(fd, buf)
		s.answerPingsIfBusy()
		if s.waiting.Add(1) > spareWorkers {
			s.waiting.Add(-1)
			return
		}
	}
}

// pause waits a little after accept failed because file descriptors or memory are exhausted.
func (s *Server) pause(msg string, err error) {
	s.log.Error(msg, "err", err)
	time.Sleep(50 * time.Millisecond)
}

// handle handles one connection. If its request has not arrived it is parked, so that the worker does not wait.
func (s *Server) handle(fd int, buf []byte) {
	ctx, cancel := context.WithCancelCause(s.calls)
	c := &call{ctx: ctx, cancel: cancel, start: time.Now(), fd: fd}
	s.watchdog.add(c)
	if err := trusted(fd); err != nil {
		defer s.end(c)
		s.log.Warn("caller is refused", "err", err)
		exit, out := failure(err, "")
		_ = c.answer(exit, out)
		return
	}
	flags := 0
	if s.reading.Add(1) > spareWorkers {
		flags = unix.MSG_DONTWAIT
	}
	r, err := c.receive(buf, flags)
	s.reading.Add(-1)
	if errors.Is(err, unix.EAGAIN) {
		s.park(c)
		return
	}
	s.serve(c, r, err)
}

// serve handles a call whose request has been read, or could not be.
func (s *Server) serve(c *call, r wire.Request, err error) {
	defer s.end(c)
	if err != nil {
		if errors.Is(err, wire.ErrShort) { // a client probed the socket
			s.log.Debug("caller disconnected", "err", err)
			return
		}
		s.log.Warn("request is refused", "err", err)
		if errors.Is(err, wire.ErrVersion) {
			_ = c.refuseVersion()
			return
		}
		exit, out := failure(model.Errorf(model.CodeDecode, "", "request: %w", err), "")
		_ = c.answer(exit, out)
		return
	}
	exit, out := s.verbs.verb(c, r)
	if err := c.answer(exit, out); err != nil {
		s.log.Warn("caller disconnected before the response", "container", short(r.Getenv("CNI_CONTAINERID")), "err", err)
	}
}

func (s *Server) end(c *call) {
	s.watchdog.remove(c)
	c.close()
}

// trusted refuses callers that are neither root nor the agent's own user. Outside of a user namespace the two are the
// same.
func trusted(fd int) error {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return fmt.Errorf("caller: %w", err)
	}
	if peer.Uid != 0 && peer.Uid != uint32(os.Geteuid()) {
		return model.Errorf(model.CodeIO, "only root may call", "caller: uid %d of process %d is not root",
			peer.Uid, peer.Pid)
	}
	return nil
}

// short returns the part of a container ID that is logged.
func short(id string) string { return id[:min(len(id), 12)] }
