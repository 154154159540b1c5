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
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
)

// How many workers there are: so many wait for callers, and so many calls are done at once. Whoever comes later waits
// in the socket's backlog, and is told to try again when that takes too long.
const (
	spareWorkers = 2
	maxWorkers   = 256
)

// grace is how long the calls in flight may take when the agent stops.
const grace = 20 * time.Second

// Config is what a Server needs.
type Config struct {
	Socket   string
	Attacher Attacher
	Memory   Memory
	Log      *slog.Logger
	// Now is the clock by which what failed is tried again.
	Now func() time.Time
	// Networks finds the networks that pods ask for; nil: what the configuration of a call names is all.
	Networks *multinet.Resolver
	// Reporter, which may be nil, is told what became of pods.
	Reporter multinet.Reporter
	// Pods, which may be nil, tells what running pods ask for.
	Pods Pods
	// Own are the namespaces that no container has: the agent's, and the machine's when that is another.
	Own []*netns.NS
	// Ready is called once callers are answered; may be nil.
	Ready func()
	// Fit says why the node can take no new pods whatever their networks, for STATUS; may be nil.
	Fit func() error
	// Called is told of every call that is over, and its error; may be nil.
	Called func(verb string, err error, took time.Duration)
	// Alone are the plugins in whose name weft-cni may be executed.
	Alone []string
	// Verbs are what may be asked beyond CNI's verbs, by their names.
	Verbs map[string]Verb
}

// Server answers CNI calls: it takes them from the socket, and has them done by verbs. follower gives running pods the
// interfaces that they ask for later.
type Server struct {
	cfg      *Config
	log      *slog.Logger
	socket   *listener
	dog      *watchdog
	news     *news
	pods     *podTable
	verbs    *verbs
	follower *follower

	// calls is the parent of every call's context; stop ends them all.
	calls context.Context
	stop  context.CancelFunc

	workers sync.WaitGroup
	// waiting counts the workers in accept, all those that live; both may be read while they change.
	waiting, all atomic.Int32
	closing      atomic.Bool
	// reading counts the workers that wait for a request.
	reading atomic.Int32
	parked  parked
}

// New makes a server and takes the socket over; from then on callers wait for Run.
func New(c Config) (*Server, error) {
	cfg, log, networks := &c, c.Log.With("room", "cniserver"), c.Networks
	if networks == nil {
		networks = &multinet.Resolver{}
	}
	news, pods := newNews(cfg.Reporter, log), &podTable{}
	vs := &verbs{cfg: cfg, log: log, networks: networks, news: news, pods: pods}
	s := &Server{
		cfg: cfg, log: log, dog: newWatchdog(), news: news, pods: pods, parked: newParked(), verbs: vs,
		follower: &follower{cfg: cfg, log: log, networks: networks, news: news, pods: pods, verbs: vs},
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
	if vs.queue, err = openQueue(wire.QueueDir(cfg.Socket), s.log, cfg.Now, vs.replay); err != nil {
		return nil, errors.Join(err, s.socket.close())
	}
	s.calls, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Run answers callers and does what is in the queue until ctx ends. Then it lets the calls in flight finish and gives
// the socket up.
func (s *Server) Run(ctx context.Context) error {
	watch, stopWatch := context.WithCancel(context.Background())
	var helpers sync.WaitGroup
	helpers.Go(func() { s.dog.run(watch) })
	helpers.Go(func() { s.verbs.queue.run(ctx) })
	helpers.Go(s.pings)
	helpers.Go(func() { s.news.run(watch) })
	if s.cfg.Pods != nil {
		records, err := s.cfg.Memory.List()
		if err != nil {
			s.log.Error("pods of an agent before this one", "err", err)
		}
		s.pods.remember(records)
		helpers.Go(func() { s.follower.follow(ctx) })
	}
	for range spareWorkers {
		s.hire()
	}
	if s.cfg.Ready != nil {
		s.cfg.Ready()
	}
	<-ctx.Done()
	s.closing.Store(true)
	s.socket.wake()
	s.drain()
	stopWatch()
	helpers.Wait()
	return errors.Join(s.socket.close(), s.verbs.queue.close())
}

// drain waits until the workers are gone; calls that outlast the grace are ended.
func (s *Server) drain() {
	late := time.AfterFunc(grace, s.stop)
	s.workers.Wait()
	late.Stop()
	s.stop()
}

// hire starts one more worker that waits for callers.
func (s *Server) hire() {
	s.waiting.Add(1)
	s.all.Add(1)
	s.workers.Go(s.work)
}

// work waits for callers and does their calls until enough others wait.
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
			s.pause("callers can not be accepted", err)
			continue
		}
		if s.waiting.Add(-1) == 0 && s.all.Load() < maxWorkers {
			s.hire()
		}
		_ = s.answerPings()
		s.handle(fd, buf)
		_ = s.answerPings()
		if s.waiting.Add(1) > spareWorkers {
			s.waiting.Add(-1)
			return
		}
	}
}

// pause waits a little when accept fails for want of descriptors or memory.
func (s *Server) pause(msg string, err error) {
	s.log.Error(msg, "err", err)
	time.Sleep(50 * time.Millisecond)
}

// handle does the whole of one connection, unless its request is not there yet: then the worker does not wait for it.
func (s *Server) handle(fd int, buf []byte) {
	ctx, cancel := context.WithCancelCause(s.calls)
	c := &call{ctx: ctx, cancel: cancel, start: time.Now(), fd: fd}
	s.dog.add(c)
	if err := trusted(fd); err != nil {
		defer s.end(c)
		s.log.Warn("caller refused", "err", err)
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

// serve does a call whose request has been read, or not.
func (s *Server) serve(c *call, r wire.Request, err error) {
	defer s.end(c)
	if err != nil {
		if errors.Is(err, wire.ErrShort) { // somebody looked whether anybody listens
			s.log.Debug("caller went away", "err", err)
			return
		}
		s.log.Warn("request refused", "err", err)
		exit, out := failure(model.Faultf(model.CodeDecode, "", "request: %w", err), "")
		_ = c.answer(exit, out)
		return
	}
	exit, out := s.verbs.verb(c, r)
	if err := c.answer(exit, out); err != nil {
		s.log.Warn("caller did not wait for the answer", "id", short(r.Getenv("CNI_CONTAINERID")), "err", err)
	}
}

func (s *Server) end(c *call) {
	s.dog.remove(c)
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
		return model.Faultf(model.CodeIO, "only root may call", "caller: uid %d of process %d is not root",
			peer.Uid, peer.Pid)
	}
	return nil
}

// short is what of a container id goes into the log.
func short(id string) string { return id[:min(len(id), 12)] }
