// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/wire"
)

// Attacher does the work: one network of one container at a time.
type Attacher interface {
	Add(ctx context.Context, job attach.Job) (model.Result, error)
	Del(ctx context.Context, job attach.Job) error
	Check(ctx context.Context, job attach.Job) error
	Status(ctx context.Context, job attach.Job) error
	GC(ctx context.Context, job attach.Job, valid []model.AttachmentKey) error
}

// undoLimit bounds the undo of the networks of an ADD that failed at a later one.
const undoLimit = 10 * time.Second

// errPanic is wrapped by the error of a call that panicked.
var errPanic = errors.New("panic")

// verb does a call and gives what weft-cni prints and exits with.
func (s *Server) verb(c *call, r wire.Request) (exit int, out []byte) {
	if name := r.Getenv(wire.VerbName); name != "" {
		return s.other(c, r, name)
	}
	out, err := s.outcome(c, r)
	if err != nil {
		v, _ := wire.Field(r.Stdin(), "cniVersion")
		return failure(err, v)
	}
	return 0, out
}

// outcome does a call and logs how it went.
func (s *Server) outcome(c *call, r wire.Request) ([]byte, error) {
	call, err := parseCall(r)
	log := s.log.With("verb", call.Command, "id", short(call.Request.ContainerID), "ifname", call.Request.IfName,
		"network", call.Request.Network)
	out, err := s.do(c, r, call, err, log)
	took := time.Since(c.start).Round(time.Microsecond)
	if s.cfg.Called != nil {
		s.cfg.Called(call.Command, codedOrNil(err), took)
	}
	if err != nil {
		log.Warn("call failed", "took", took, "err", err)
		return nil, err
	}
	log.Debug("call done", "took", took)
	return out, nil
}

// do runs the verb; a panic becomes an error.
func (s *Server) do(c *call, r wire.Request, call cni.Call, bad error, log *slog.Logger) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("panic", "value", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: %w: %v", call.Command, errPanic, p)
		}
	}()
	if bad != nil && (call.Command != cni.Del || call.Conf == nil) {
		return nil, bad
	}
	if call.Command == cni.Version {
		return cni.VersionReply(), nil
	}
	ns, err := s.namespace(c, r, &call)
	if err != nil {
		return nil, err
	}
	if ns != nil {
		defer func() { _ = ns.Close() }()
	}
	if name := r.Getenv(wire.PluginVar); name != "" {
		if bad != nil {
			return nil, bad
		}
		return s.alone(c, call, ns, name)
	}
	switch call.Command {
	case cni.Add:
		return s.add(c, call, ns)
	case cni.Del:
		return nil, s.del(c.ctx, call, ns, bad)
	case cni.Check:
		return nil, s.check(c.ctx, call, ns)
	case cni.GC:
		return nil, s.gc(c.ctx, call)
	}
	return nil, s.status(c.ctx, call)
}

// add attaches the networks one after the other; when one fails those before it are detached again.
func (s *Server) add(c *call, call cni.Call, ns *netns.NS) ([]byte, error) {
	if err := s.queue.settle(c.ctx, call.Request); err != nil {
		return nil, err
	}
	if c.abandoned() {
		return nil, model.Faultf(model.CodeTryAgain, "", "the caller did not wait until its turn")
	}
	plan, err := s.networks.Resolve(c.ctx, call)
	if err != nil {
		s.news.failed(plan, err)
		return nil, err
	}
	var results []model.Result
	if err = keepDevices(plan.Attachments); err == nil {
		results, err = s.attachAll(c.ctx, plan.Attachments, ns)
	}
	if err != nil {
		dropDevices(plan.Attachments)
		s.news.failed(plan, err)
		return nil, err
	}
	if plan.Pod != nil && s.cfg.Pods != nil {
		s.pods.put(call.Request.ContainerID, refOf(*plan.Pod), plan.Pod.Annotations[multinet.NetworksKey], true)
	}
	s.news.added(plan, results)
	return cni.FormatResult(results[0], call.Request.CNIVersion)
}

// together is an Attacher that attaches several networks of one pod at once, all or none; failed is the one whose error
// it is.
type together interface {
	AddAll(ctx context.Context, jobs []attach.Job) (results []model.Result, failed int, err error)
}

// attachAll attaches all of them or none.
func (s *Server) attachAll(ctx context.Context, all []multinet.Attachment, ns *netns.NS) ([]model.Result, error) {
	if a, ok := s.cfg.Attacher.(together); ok && len(all) > 1 {
		jobs := make([]attach.Job, 0, len(all))
		for _, d := range all {
			jobs = append(jobs, job(d, ns))
		}
		results, failed, err := a.AddAll(ctx, jobs)
		if err != nil {
			return nil, place(err, all, failed)
		}
		return results, nil
	}
	results := make([]model.Result, 0, len(all))
	for i, d := range all {
		result, err := s.cfg.Attacher.Add(ctx, job(d, ns))
		if err != nil {
			return nil, errors.Join(place(err, all, i), s.undo(ctx, all[:i], ns))
		}
		results = append(results, result)
	}
	return results, nil
}

// undo detaches in reverse what was attached, also when the call's time is over.
func (s *Server) undo(ctx context.Context, done []multinet.Attachment, ns *netns.NS) error {
	if len(done) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	var errs []error
	for i, d := range slices.Backward(done) {
		if err := s.cfg.Attacher.Del(ctx, job(d, ns)); err != nil {
			errs = append(errs, fmt.Errorf("undo: %w", place(err, done, i)))
		}
	}
	return errors.Join(errs...)
}

// place says in which of several networks an error is.
func place(err error, all []multinet.Attachment, i int) error {
	if len(all) == 1 {
		return err
	}
	if o := all[i].Request.Origin; o != nil && len(o.Asked) > 0 {
		return fmt.Errorf("network %s: %w", all[i].Label, err) // by the name that the pod asked for it
	}
	return fmt.Errorf("delegates[%d] (network %s): %w", i, all[i].Network.Name, err)
}
