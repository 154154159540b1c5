// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/checkpoint"
	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/network"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// Report counts the sandboxes that Recover kept, and what it removed.
type Report struct {
	Sandboxes  int `json:"sandboxes"` // kept
	Incomplete int `json:"halves"`    // the runtime was killed while it created or removed them
	// Checkpoints are those without a sandbox and corrupt ones.
	Checkpoints int `json:"checkpoints"`
	Namespaces  int `json:"namespaces"` // network namespaces without a sandbox
	Names       int `json:"names"`      // reserved names without a sandbox
	Cached      int `json:"cached"`     // attachments in the CNI cache without a sandbox
}

// Recover compares checkpoints with the state directory and removes what has no counterpart. It runs once, before any
// other method. If a removal fails, it returns an error, and the next start retries.
func (e *Engine) Recover(ctx context.Context) (Report, error) {
	if err := e.awaitPlugins(ctx); err != nil {
		return Report{}, err
	}
	valid, corrupt, err := e.checkpoints.List()
	if err != nil {
		return Report{}, err
	}
	r := &recovery{Engine: e, byID: map[string]checkpoint.Checkpoint{}, corrupt: corrupt}
	for _, c := range valid {
		r.byID[c.ID] = c
	}
	for _, c := range corrupt {
		e.log.Warn("checkpoint is corrupt; using the sandbox's record instead", "err", c.Err)
	}
	for _, id := range e.sandboxes.ids() {
		if record, err := e.sandboxes.record(id); err == nil {
			r.sandbox(ctx, record)
		}
	}
	for id := range r.withoutRecord() {
		r.count(&r.report.Incomplete, r.removeWithoutRecord(ctx, id))
	}
	r.report.Cached, err = e.cfg.Net.CleanCache(ctx, e.sandboxes.path("netns"), r.hasRecord)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	r.namespaces()
	for id := range r.byID {
		r.checkpoint(id)
	}
	for _, c := range corrupt {
		r.checkpoint(c.ID)
	}
	r.names()
	return r.report, errors.Join(r.errs...)
}

// recovery is one run of Recover.
type recovery struct {
	*Engine
	byID    map[string]checkpoint.Checkpoint // valid checkpoints by sandbox
	corrupt []checkpoint.Corrupt
	report  Report
	errs    []error
}

// count increments n, or records the error.
func (r *recovery) count(n *int, err error) {
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	*n++
}

// hasRecord reports whether a sandbox has a record.
func (r *recovery) hasRecord(id string) bool { _, err := r.sandboxes.record(id); return err == nil }

// checkpoint removes a checkpoint without a sandbox.
func (r *recovery) checkpoint(id string) {
	if !r.hasRecord(id) {
		r.count(&r.report.Checkpoints, r.checkpoints.Remove(id))
	}
}

// awaitPlugins waits for plugins that a killed runtime was executing, because an ADD that finishes after its DEL would
// leak. It kills them after a timeout.
func (e *Engine) awaitPlugins(ctx context.Context) error {
	const timeout = 30 * time.Second
	known := map[string]bool{}
	for _, id := range e.sandboxes.ids() {
		known[id] = true
	}
	plugins, err := process.ByEnvFunc("CNI_CONTAINERID", func(id string) bool { return known[id] })
	if err != nil {
		return err
	}
	soft, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var errs []error
	for _, p := range plugins {
		// A plugin's stdout is a pipe to the runtime. A daemon that a plugin started is not a plugin, and continues.
		if out, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", p.PID)); err != nil || !strings.HasPrefix(out, "pipe:") {
			continue
		}
		e.log.Info("waiting for a plugin of the previous runtime", "pid", p.PID)
		if p.Wait(soft) != nil && ctx.Err() == nil {
			errs = append(errs, p.Terminate(ctx, 0))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// sandbox keeps a sandbox that has a record and a checkpoint, even if it is not ready: the kubelet's part decides about
// that. It removes one without a checkpoint, which the runtime was creating or removing when it was killed.
func (r *recovery) sandbox(ctx context.Context, record Record) {
	switch _, ok := r.byID[record.ID]; {
	case ok:
		r.report.Sandboxes++
	case r.sandboxes.inspect(record).State == Ready:
		// The sandbox is complete; only its checkpoint was lost.
		r.count(&r.report.Checkpoints, r.checkpoints.Write(record.checkpoint()))
		r.report.Sandboxes++
	default:
		if err := r.RemovePodSandbox(ctx, record.ID); err != nil {
			r.count(&r.report.Incomplete, fmt.Errorf("sandbox %s: %w", record.ID, err))
			return
		}
		r.report.Incomplete++
	}
}

// withoutRecord returns the IDs of sandboxes that have a directory or a checkpoint, but no record.
func (r *recovery) withoutRecord() map[string]bool {
	out := map[string]bool{}
	entries, _ := os.ReadDir(r.sandboxes.path("sandboxes"))
	for _, entry := range entries {
		out[entry.Name()] = true
	}
	for id := range r.byID {
		out[id] = true
	}
	for _, c := range r.corrupt {
		out[c.ID] = true
	}
	for _, id := range r.sandboxes.ids() {
		delete(out, id)
	}
	return out
}

// removeWithoutRecord removes a sandbox whose record is lost. If the checkpoint records that it had a network, that is
// torn down with the configuration in the CNI cache, or with the current one if the cache has none.
func (r *recovery) removeWithoutRecord(ctx context.Context, id string) error {
	var errs []error
	if c, ok := r.byID[id]; ok && !c.HostNetwork {
		record := Record{ID: id, Netns: c.Netns, Config: PodConfig{
			Namespace: c.Namespace, Name: c.Name, UID: c.UID, PortMappings: c.PortMappings,
		}}
		if as, err := network.Plan(r.cfg.Networks()); err == nil {
			errs = append(errs, r.cfg.Net.TearDownPod(ctx, r.netPod(record), as))
		}
	}
	errs = append(errs, process.KillByEnv(ctx, container.EnvSandbox, id), os.RemoveAll(r.sandboxes.dir(id)))
	return errors.Join(errs...)
}

// namespaces removes network namespaces without a sandbox.
func (r *recovery) namespaces() {
	entries, _ := os.ReadDir(r.sandboxes.path("netns"))
	for _, entry := range entries {
		if !r.hasRecord(entry.Name()) {
			r.count(&r.report.Namespaces, netns.Remove(r.sandboxes.path("netns", entry.Name())))
		}
	}
}

// names releases names without a sandbox.
func (r *recovery) names() {
	entries, _ := os.ReadDir(r.sandboxes.path("names"))
	for _, entry := range entries {
		path := r.sandboxes.path("names", entry.Name())
		b, err := os.ReadFile(path)
		if err == nil && r.hasRecord(strings.TrimSpace(string(b))) && !strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		r.count(&r.report.Names, os.Remove(path))
	}
}
