// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/sandbox/pleg"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Server is the runtime process of one state directory.
type Server struct {
	cfg     Config
	log     *slog.Logger
	engine  *engine.Engine
	network *network.Attacher
	confs   *confdir.Watcher
	pleg    *pleg.Relister
	store   podStore
	report  engine.Report

	mu      sync.Mutex
	workers map[string]*worker // by pod UID
	ctx     context.Context    // of the workers; set by run
	running sync.WaitGroup
	closing bool // the server stops because no pod is left; it refuses new ones
	idle    notify.Chan
}

// Serve runs the server of a state directory until ctx ends. Pods survive it; the next server of the same directory
// resumes them.
func Serve(ctx context.Context, cfg Config) error {
	cfg, err := cfg.absolute()
	if err != nil {
		return err
	}
	if err := cfg.check(); err != nil {
		return err
	}
	lock, err := process.Lock(ctx, filepath.Join(cfg.StateDir, "lock"), 2*time.Second)
	if err != nil {
		return model.Errorf(model.CodeIO, "use that one, or another --state-dir",
			"state directory %s is in use by another runtime: %w", cfg.StateDir, err)
	}
	defer func() { _ = lock.Close() }()
	if err := process.WriteJSON(filepath.Join(cfg.StateDir, argsFile), cfg.Args); err != nil {
		return err
	}
	s, err := newServer(ctx, cfg)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// absolute makes all paths absolute, because the processes of pods have other working directories.
func (c Config) absolute() (Config, error) {
	if c.Times == (Times{}) {
		c.Times = KubeletTimes()
	}
	var errs []error
	abs := func(p *string) {
		if *p == "" {
			return
		}
		a, err := filepath.Abs(*p)
		errs = append(errs, err)
		*p = a
	}
	for _, p := range []*string{&c.StateDir, &c.ConfDir, &c.CacheDir, &c.LogDir, &c.PodsDir} {
		abs(p)
	}
	bins := make([]string, len(c.BinDirs))
	for i, b := range c.BinDirs {
		bins[i] = b
		abs(&bins[i])
	}
	c.BinDirs = bins
	return c, errors.Join(errs...)
}

func newServer(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{
		cfg: cfg, log: cfg.Log.With("component", "sandbox"), store: podStore{filepath.Join(cfg.StateDir, "pods")},
		workers: map[string]*worker{}, idle: notify.New(),
	}
	s.network = network.New(network.Config{
		BinDirs: cfg.BinDirs, CacheDir: cfg.CacheDir, Stderr: os.Stderr, Failpoint: cfg.Failpoint,
	})
	s.confs = confdir.NewWatcher(ctx, cfg.ConfDir, cfg.BinDirs, s.network.Validator(), cfg.Log)
	var err error
	s.engine, err = engine.New(engine.Config{
		StateDir: cfg.StateDir, Self: cfg.Self, Net: s.network, Networks: s.confs.Snapshot, Log: cfg.Log, Now: cfg.Now,
		Failpoint: cfg.Failpoint,
	})
	if err != nil {
		return nil, err
	}
	s.pleg = pleg.New(pleg.Config{List: s.list, Period: cfg.Times.Relist, Threshold: cfg.Times.Unhealthy, Now: cfg.Now})
	return s, nil
}

func (s *Server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rep, err := s.engine.Recover(ctx)
	s.report = rep
	s.log.Info("runtime recovered", "report", rep)
	if err != nil {
		s.log.Warn("cleanup is incomplete; the next start retries", "err", err)
	}
	if list := s.confs.Snapshot().Default; list != nil {
		if err := s.network.GC(ctx, list); err != nil {
			s.log.Warn("garbage collection of the network failed", "err", err)
		}
	}
	s.ctx = ctx
	s.pleg.Relist(ctx)
	if err := s.resume(); err != nil {
		s.log.Warn("some stored pods cannot be read", "err", err)
	}
	listener, err := listen(s.cfg.StateDir)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(Socket(s.cfg.StateDir)) }()
	s.pleg.Start(ctx)
	failed := make(chan error, 3)
	s.running.Go(func() { failed <- s.confs.Run(ctx) })
	s.running.Go(func() { failed <- s.api(ctx, listener) })
	s.running.Go(func() { failed <- s.watchDir(ctx) })
	s.log.Info("runtime is serving", "stateDir", s.cfg.StateDir)
	err = s.loop(ctx, failed)
	cancel()
	return errors.Join(err, s.wait())
}

// wait waits for the workers to stop. Pods continue to run.
func (s *Server) wait() error {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(20 * time.Second):
		return errors.New("a pod worker does not stop; the next start recovers its pod")
	}
}

// loop is the sync loop: it dispatches events to the workers.
func (s *Server) loop(ctx context.Context, failed <-chan error) error {
	housekeeping := time.NewTicker(s.cfg.Times.Housekeeping)
	defer housekeeping.Stop()
	idle := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() == nil && err != nil {
				return err
			}
		case e := <-s.pleg.Watch():
			s.notify(e.PodUID) // the pod's worker restarts and garbage-collects containers
		case <-s.confs.Changed():
			s.notify("")
		case <-housekeeping.C:
			s.housekeep()
			if idle++; time.Duration(idle)*s.cfg.Times.Housekeeping > time.Minute && s.close() {
				return nil // no client has applied a pod since the start
			}
		case <-s.idle:
			if s.close() {
				return nil
			}
		}
	}
}

// notify wakes the worker of a pod, or all workers if uid is empty.
func (s *Server) notify(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.workers {
		if uid == "" || uid == id {
			w.wake.Notify()
		}
	}
}

// close reports whether the server must stop because no pod is left.
func (s *Server) close() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = s.cfg.UntilIdle && len(s.workers) == 0
	if s.closing {
		s.log.Info("stopping, because no pod is left")
	}
	return s.closing
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.workers)
}

// housekeep terminates orphaned pods.
func (s *Server) housekeep() {
	if ok, err := s.pleg.Healthy(); !ok {
		s.log.Warn("PLEG is not healthy; pods are not synced", "err", err)
	}
	for _, b := range s.engine.Sandboxes() {
		s.terminateOrphan(b)
	}
}

// startWorkerLocked starts a worker for a pod.
func (s *Server) startWorkerLocked(d desired) {
	w := s.newWorker(d)
	s.workers[w.uid] = w
	s.running.Go(func() {
		w.run(s.ctx)
		select {
		case <-w.done:
			s.mu.Lock()
			delete(s.workers, w.uid)
			s.mu.Unlock()
			s.idle.Notify()
		default:
		}
	})
}

// list lists the containers for the PLEG.
func (s *Server) list(context.Context) (pleg.Pods, error) {
	out := pleg.Pods{}
	put := func(uid, id string, st pleg.State) {
		if out[uid] == nil {
			out[uid] = map[string]pleg.State{}
		}
		out[uid][id] = st
	}
	for _, b := range s.engine.Sandboxes() {
		st := pleg.Exited
		if b.State == engine.Ready {
			st = pleg.Running
		}
		put(b.Config.UID, b.ID, st)
	}
	for _, c := range s.engine.Containers() {
		st := pleg.Unknown
		switch c.State {
		case container.Running:
			st = pleg.Running
		case container.Exited:
			st = pleg.Exited
		}
		put(c.PodUID, c.ID, st)
	}
	return out, nil
}

// networkProblem returns why pods cannot be attached now, or "" if they can.
func (s *Server) networkProblem() string {
	if p := s.confs.Snapshot().Problem; p != "" {
		return fmt.Sprintf("network is not ready: %s", p)
	}
	return ""
}
