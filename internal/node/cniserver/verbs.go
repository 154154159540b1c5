// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/multuslog"
)

// Attacher attaches and detaches.
type Attacher interface {
	// AddAll attaches one container to networks, all or none; failed is the index of the job with the error.
	AddAll(ctx context.Context, jobs []attach.Job) (results []model.Result, failed int, err error)
	// DelAll detaches a container from networks; a failure does not stop the others. The errors are those of the jobs.
	DelAll(ctx context.Context, jobs []attach.Job) []error
	Check(ctx context.Context, job attach.Job) error
	Status(ctx context.Context, job attach.Job) error
	GC(ctx context.Context, job attach.Job, valid []model.AttachmentKey) error
}

// errPanic is wrapped by the error of a call that panicked.
var errPanic = errors.New("panic")

// verbs does the calls.
type verbs struct {
	cfg      *Config
	log      *slog.Logger
	networks *multinet.Resolver
	reporter *statusReporter
	pods     *podTable
	queue    *queue
	// multusLog writes the log files of Multus' configurations.
	multusLog *multuslog.Log

	own []uint64 // the inode numbers of Config.Own
}

// verb does a call and returns the exit code and the output of weft-cni.
func (vs *verbs) verb(c *call, r wire.Request) (exit int, out []byte) {
	if name := r.Getenv(wire.VerbName); name != "" {
		return vs.other(c, r, name)
	}
	out, err := vs.outcome(c, r)
	if err != nil {
		v, _ := wire.Field(r.Stdin(), "cniVersion")
		return failure(err, v)
	}
	return 0, out
}

// outcome does a call and logs the result.
func (vs *verbs) outcome(c *call, r wire.Request) ([]byte, error) {
	call, err := parseCall(r)
	log := vs.log.With("verb", call.Command, "container", short(call.Request.ContainerID),
		"interface", call.Request.IfName, "network", call.Request.Network)
	var lines callLog
	runtimes := r.Getenv(wire.PluginVar) == "" && call.Command != cni.Version
	if runtimes { // a plugin's configuration may have keys of the same names
		lines = vs.logOf(call)
		lines.begun()
	}
	out, err := vs.do(c, r, call, err, log)
	took := time.Since(c.start).Round(time.Microsecond)
	if vs.cfg.Called != nil {
		vs.cfg.Called(call.Command, codedOrNil(err), took)
	}
	if err != nil {
		log.Warn("call failed", "took", took, "err", err)
		if runtimes {
			lines.failed(err)
		}
		return nil, err
	}
	log.Debug("call done", "took", took)
	return out, nil
}

// do runs the verb; a panic becomes an error.
func (vs *verbs) do(c *call, r wire.Request, call cni.Call, bad error, log *slog.Logger) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("agent panicked in a call", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: %w: %v", call.Command, errPanic, p)
		}
	}()
	if bad != nil && (call.Command != cni.Del || call.Conf == nil) {
		return nil, bad
	}
	if call.Command == cni.Version {
		return cni.VersionReply(), nil
	}
	ns, err := vs.namespace(c, r, &call)
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
		return vs.servePlugin(c, call, ns, name)
	}
	switch call.Command {
	case cni.Add:
		return vs.add(c, call, ns)
	case cni.Del:
		return nil, vs.del(c.ctx, call, ns, bad)
	case cni.Check:
		return nil, vs.check(c.ctx, call, ns)
	case cni.GC:
		return nil, vs.gc(c.ctx, call)
	}
	return nil, vs.status(c.ctx, call)
}

// add attaches the networks of a pod, all or none.
func (vs *verbs) add(c *call, call cni.Call, ns *netns.NS) ([]byte, error) {
	if err := vs.queue.drainFor(c.ctx, call.Request); err != nil {
		return nil, err
	}
	plan, err := vs.networks.Resolve(c.ctx, call)
	if err != nil {
		vs.reporter.failed(plan, err)
		return nil, err
	}
	var results []model.Result
	if err = writeDevices(plan.Attachments); err == nil {
		results, err = vs.attachAll(c.ctx, plan.Attachments, ns, c.abandoned)
	}
	if err != nil {
		removeDevices(plan.Attachments)
		vs.reporter.failed(plan, err)
		return nil, err
	}
	if plan.Pod != nil && vs.cfg.Pods != nil && !plan.ByMultus {
		vs.pods.put(call.Request.ContainerID, refOf(*plan.Pod), plan.Pod.Annotations[multinet.NetworksKey], true)
	}
	vs.reporter.added(plan, results)
	lines := vs.logOf(call)
	for i, a := range plan.Attachments {
		lines.added(a, results[i])
	}
	return cni.FormatResult(results[0], call.Request.CNIVersion)
}

// attachAll attaches all of them, or none, also if the caller has abandoned the call (attach.Job).
func (vs *verbs) attachAll(
	ctx context.Context, all []multinet.Attachment, ns *netns.NS, abandoned func() bool,
) ([]model.Result, error) {
	jobs := make([]attach.Job, 0, len(all))
	for _, d := range all {
		jobs = append(jobs, job(d, ns))
	}
	jobs[0].Abandoned = abandoned
	results, failed, err := vs.cfg.Attacher.AddAll(ctx, jobs)
	if err != nil {
		return nil, inNetwork(err, all, failed)
	}
	return results, nil
}

// inNetwork adds the network to an error if the call has more than one.
func inNetwork(err error, all []multinet.Attachment, i int) error {
	if len(all) == 1 {
		return err
	}
	if o := all[i].Request.Origin; o != nil && len(o.Selection) > 0 {
		return fmt.Errorf("network %s: %w", all[i].Label, err) // by the name that the pod asked for it
	}
	return fmt.Errorf("delegates[%d] (network %s): %w", i, all[i].Network.Name, err)
}
