// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/endpoint/journal"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const journalDir = "/run/weft/journal"

// interfacePlugin handles a call of a plugin with a planner.
type interfacePlugin struct {
	env        Env
	typ        string
	planners   map[string]plugin.Planner
	allocators map[string]ipam.Allocator
}

// do handles one call. confErr is the error of its configuration: only DEL works without one.
func (p interfacePlugin) do(ctx context.Context, call cni.Call, confErr error) ([]byte, error) {
	job := attach.Job{Request: call.Request, OwnNetns: call.NetnsOverride}
	if confErr == nil {
		job.Network, job.Prev, confErr = cni.ParsePlugin(call.Conf)
		if confErr != nil && call.Command == cni.Del && len(job.Network.Plugins) > 0 {
			logger(p.env, p.typ).Warn("DEL continues without the previous result", "err", confErr)
			confErr = nil
		}
	}
	if confErr != nil && call.Command != cni.Del {
		return nil, confErr
	}
	if confErr == nil {
		job.Network.Plugins[0].Type = p.typ // the name under which the program was executed, as in the reference plugins
	}
	ns, err := openNetns(call)
	if err != nil {
		return nil, err
	}
	if ns != nil {
		defer func() { _ = ns.Close() }()
		job.Netns = ns
	}
	s, err := p.open()
	if err != nil {
		return nil, statusError(call, err)
	}
	defer s.close()
	if call.Command == cni.Del {
		return nil, s.del(ctx, job, confErr)
	}
	return s.verb(ctx, call, job)
}

// service holds what a call needs.
type service struct {
	*attach.Attacher
	journal *journal.Journal
	host    *kernel.Conn
	log     *slog.Logger
}

func (p interfacePlugin) open() (*service, error) {
	dir := p.env.Getenv("WEFT_JOURNAL_DIR")
	if dir == "" {
		dir = journalDir
	}
	j, err := journal.Open(dir, p.typ)
	if err != nil {
		return nil, err
	}
	bootID, err := boot.ID()
	if err != nil {
		return nil, err
	}
	host, err := kernel.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("node's network namespace: %w", err)
	}
	host.Root = p.env.Root
	s := &service{journal: j, host: host, log: logger(p.env, p.typ)}
	s.Attacher = attach.New(attach.Config{
		Records: j, Locks: j, Host: host, Planners: p.planners, Allocators: p.allocators, Log: s.log, Now: p.env.Now,
		Exec: &foreign.Runner{Env: p.env.Environ, Stderr: p.env.Stderr},
		Boot: bootID, Failpoint: p.env.Failpoint,
	})
	return s, nil
}

func (s *service) close() { _ = s.host.Close() }

func (s *service) verb(ctx context.Context, call cni.Call, job attach.Job) ([]byte, error) {
	switch call.Command {
	case cni.Add:
		s.undoKilled(ctx, job)
		result, err := s.Add(ctx, job)
		if err != nil {
			return nil, err
		}
		return cni.FormatResult(result, call.Request.CNIVersion)
	case cni.Check:
		if job.Prev == nil {
			return nil, model.Errorf(model.CodeInvalidConf, "CHECK needs the result of the ADD", "prevResult is missing")
		}
		return nil, s.Check(ctx, job)
	case cni.Status:
		return nil, s.Status(ctx, job)
	case cni.GC:
		return nil, errors.Join(s.GC(ctx, job, call.Valid), s.journal.SweepLocks())
	}
	return nil, model.Errorf(model.CodeInvalidEnv, "", "environment: CNI_COMMAND %q is unknown", call.Command)
}

// del detaches by the record of the call's network. If there is none, because the network was renamed since the ADD or
// its configuration is gone, it uses the records of the container's interface, whatever their network.
func (s *service) del(ctx context.Context, job attach.Job, confErr error) error {
	s.undoKilled(ctx, job)
	var errs []error
	found := false
	if confErr == nil {
		var err error
		if _, found, err = s.journal.Get(job.Request.Key()); err != nil {
			return err
		}
	}
	if !found {
		others, err := s.journal.Find(job.Request.ContainerID, job.Request.IfName)
		errs = append(errs, err)
		for _, rec := range others {
			errs = append(errs,
				s.Del(ctx, attach.Job{Network: rec.Network, Request: rec.Request, Netns: job.Netns, OwnNetns: job.OwnNetns}))
		}
		if confErr != nil && len(others) == 0 {
			return confErr
		}
	}
	if confErr == nil {
		errs = append(errs, s.Del(ctx, job))
	}
	return errors.Join(errs...)
}

// undoKilled undoes what killed calls of this network have left for other containers. Errors are only logged, because
// this call did not cause them; the next call retries.
func (s *service) undoKilled(ctx context.Context, job attach.Job) {
	records, err := s.journal.Unfinished(job.Request.Network)
	if err != nil {
		s.log.Warn("unfinished records cannot be read", "err", err)
	}
	for _, rec := range records {
		if rec.Request.ContainerID == job.Request.ContainerID {
			continue
		}
		release, ok := s.journal.TryContainer(rec.Request.ContainerID)
		if !ok {
			continue // its call is in progress
		}
		if err := s.UndoUnfinished(ctx, rec); err != nil {
			s.log.Warn("attachment of a killed call cannot be undone", "attachment", rec.Key().String(), "err", err)
		}
		release()
	}
}

// openNetns opens the container's namespace; nil if it is gone and the verb works without it.
func openNetns(call cni.Call) (*netns.NS, error) {
	if call.Request.Netns == "" {
		return nil, nil
	}
	ns, err := netns.Open(call.Request.Netns)
	switch {
	case err == nil:
		return ns, nil
	case call.Command == cni.Del && errors.Is(err, netns.ErrGone):
		return nil, nil
	}
	return nil, model.Errorf(model.CodeInvalidNetns, "is CNI_NETNS the path of a network namespace?", "CNI_NETNS: %w", err)
}

// statusError returns STATUS's error code for a plugin that cannot do an ADD.
func statusError(call cni.Call, err error) error {
	var f *model.Error
	if call.Command == cni.Status && errors.As(err, &f) {
		return model.Errorf(model.CodeNotAvailable, f.Hint, "%s", f.Msg)
	}
	return err
}
