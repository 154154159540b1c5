// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/weft-net/weft/internal/attach"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/foreign"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/journal"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const (
	journalDir = "/run/weft/journal"
	bootFile   = "/proc/sys/kernel/random/boot_id"
)

// interfacePlugin is a call of a plugin that has a planner.
type interfacePlugin struct {
	env        Env
	typ        string
	planners   map[string]plugin.Planner
	allocators map[string]ipam.Allocator
}

func (p interfacePlugin) do(ctx context.Context, call cni.Call) ([]byte, error) {
	network, prev, err := cni.ParsePlugin(call.Conf)
	if err != nil {
		return nil, err
	}
	network.Plugins[0].Type = p.typ // whose name we are called by, as the reference plugins do
	job := attach.Job{Network: network, Request: call.Request, Prev: prev, OwnNetns: call.NetnsOverride}
	ns, err := openNetns(call)
	if err != nil {
		return nil, err
	}
	if ns != nil {
		defer func() { _ = ns.Close() }()
		job.Netns = ns
	}
	dir := p.env.Getenv("WEFT_JOURNAL_DIR")
	if dir == "" {
		dir = journalDir
	}
	j, err := journal.Open(dir, p.typ)
	if err != nil {
		return nil, unready(call, err)
	}
	host, err := kernel.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("node's namespace: %w", err)
	}
	defer func() { _ = host.Close() }()
	boot, err := os.ReadFile(bootFile)
	if err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	log := logger(p.env, p.typ)
	a := attach.New(attach.Config{
		Memory: j, Locks: j, Host: host, Planners: p.planners, Allocators: p.allocators, Log: log, Now: p.env.Now,
		Exec: &foreign.Runner{Env: p.env.Environ, Stderr: p.env.Stderr},
		Boot: strings.TrimSpace(string(boot)), Step: p.env.Step,
	})
	return p.verb(ctx, call, job, a, j, log)
}

func (p interfacePlugin) verb(ctx context.Context, call cni.Call, job attach.Job, a *attach.Attacher, j *journal.Journal,
	log *slog.Logger,
) ([]byte, error) {
	switch call.Command {
	case cni.Add:
		p.leftovers(ctx, a, j, job, log)
		result, err := a.Add(ctx, job)
		if err != nil {
			return nil, err
		}
		return cni.FormatResult(result, call.Request.CNIVersion)
	case cni.Del:
		p.leftovers(ctx, a, j, job, log)
		return nil, a.Del(ctx, job)
	case cni.Check:
		if job.Prev == nil {
			return nil, model.Faultf(model.CodeInvalidConf, "CHECK needs the result of the ADD", "prevResult is missing")
		}
		return nil, a.Check(ctx, job)
	case cni.Status:
		return nil, a.Status(ctx, job)
	case cni.GC:
		return nil, errors.Join(a.GC(ctx, job, call.Valid), j.SweepLocks())
	}
	return nil, model.Faultf(model.CodeInvalidEnv, "", "environment: CNI_COMMAND %q is unknown", call.Command)
}

// leftovers undoes what killed calls of this network left for other containers. That is a favour: what goes wrong with it
// is not this call's fault, and is tried again by the next one.
func (p interfacePlugin) leftovers(ctx context.Context, a *attach.Attacher, j *journal.Journal, job attach.Job, log *slog.Logger) {
	records, err := j.Unfinished(job.Request.Network)
	if err != nil {
		log.Warn("unfinished records", "err", err)
	}
	for _, rec := range records {
		if rec.Request.ContainerID == job.Request.ContainerID {
			continue
		}
		release, ok := j.TryContainer(rec.Request.ContainerID)
		if !ok {
			continue // its call is under way
		}
		if err := a.Leftover(ctx, rec); err != nil {
			log.Warn("what a killed call left is not undone", "attachment", rec.Key().String(), "err", err)
		}
		release()
	}
}

// openNetns opens the container's namespace; nil when the verb can do without and it is gone.
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
	return nil, model.Faultf(model.CodeInvalidNetns, "is CNI_NETNS the path of a network namespace?", "CNI_NETNS: %w", err)
}

// unready is STATUS's word for a plugin that could not do an ADD.
func unready(call cni.Call, err error) error {
	var f *model.Fault
	if call.Command == cni.Status && errors.As(err, &f) {
		return model.Faultf(model.CodeNotAvailable, f.Hint, "%s", f.Msg)
	}
	return err
}
