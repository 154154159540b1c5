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

// Report counts what Recover found.
type Report struct {
	Sandboxes int `json:"sandboxes"` // that go on
	Halves    int `json:"halves"`    // killed while they were made or removed: removed
	// Checkpoints without a sandbox, and those that could not be read: removed.
	Checkpoints int `json:"checkpoints"`
	Namespaces  int `json:"namespaces"` // bound for no sandbox: removed
	Names       int `json:"names"`      // taken by no sandbox: given back
	Cached      int `json:"cached"`     // attachments in the cache of no sandbox: taken away
}

// Recover compares checkpoints with what is there and cleans the difference. It runs once, before anything else. What
// cannot be cleaned now stays and is reported; the next start tries again.
func (e *Engine) Recover(ctx context.Context) (Report, error) {
	if err := e.awaitPlugins(ctx); err != nil {
		return Report{}, err
	}
	good, broken, err := e.marks.List()
	if err != nil {
		return Report{}, err
	}
	r := &recovery{Engine: e, marked: map[string]checkpoint.Checkpoint{}, broken: broken}
	for _, c := range good {
		r.marked[c.ID] = c
	}
	for _, b := range broken {
		e.log.Warn("checkpoint cannot be read, its sandbox is asked instead", "error", b.Err)
	}
	for _, id := range e.boxes.ids() {
		if record, err := e.boxes.box(id); err == nil {
			r.box(ctx, record)
		}
	}
	for id := range r.strays() {
		r.count(&r.found.Halves, r.eraseStray(ctx, id))
	}
	r.found.Cached, err = e.cfg.Net.Leftovers(ctx, e.boxes.path("netns"), r.live)
	if err != nil {
		r.errs = append(r.errs, err)
	}
	r.namespaces()
	for id := range r.marked {
		r.checkpoint(id)
	}
	for _, b := range broken {
		r.checkpoint(b.ID)
	}
	r.names()
	return r.found, errors.Join(r.errs...)
}

// recovery is one run of Recover: what the checkpoints say, and what was cleaned or could not be.
type recovery struct {
	*Engine
	marked map[string]checkpoint.Checkpoint // by sandbox
	broken []checkpoint.Broken
	found  Report
	errs   []error
}

// count counts what was done, or keeps the error.
func (r *recovery) count(n *int, err error) {
	if err != nil {
		r.errs = append(r.errs, err)
		return
	}
	*n++
}

// live reports whether a sandbox has a record.
func (r *recovery) live(id string) bool { _, err := r.boxes.box(id); return err == nil }

// checkpoint removes one that has no sandbox any more.
func (r *recovery) checkpoint(id string) {
	if !r.live(id) {
		r.count(&r.found.Checkpoints, r.marks.Remove(id))
	}
}

// awaitPlugins waits for plugins that a killed runtime was executing: an ADD that ends after its DEL would leak. One
// that does not end is killed.
func (e *Engine) awaitPlugins(ctx context.Context) error {
	const patience = 30 * time.Second
	known := map[string]bool{}
	for _, id := range e.boxes.ids() {
		known[id] = true
	}
	plugins, err := process.WithEnv("CNI_CONTAINERID", func(id string) bool { return known[id] })
	if err != nil {
		return err
	}
	soft, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var errs []error
	for _, p := range plugins {
		// What it says goes to the one who executed it. A helper that a plugin left behind says nothing, and stays.
		if out, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/1", p.PID)); err != nil || !strings.HasPrefix(out, "pipe:") {
			continue
		}
		e.log.Info("a plugin of the runtime before still runs", "process", p.PID)
		if p.Wait(soft) != nil && ctx.Err() == nil {
			errs = append(errs, p.End(ctx, 0))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// box keeps a sandbox that has both a record and a checkpoint; it may be not ready, that is the kubelet's to judge. One
// without checkpoint was killed while it was made or removed.
func (r *recovery) box(ctx context.Context, record Record) {
	switch _, marked := r.marked[record.ID]; {
	case marked:
		r.found.Sandboxes++
	case r.boxes.inspect(record).State == Ready:
		// Its checkpoint was lost, it was not killed half-way.
		r.count(&r.found.Checkpoints, r.marks.Write(record.checkpoint()))
		r.found.Sandboxes++
	default:
		if err := r.RemovePodSandbox(ctx, record.ID); err != nil {
			r.count(&r.found.Halves, fmt.Errorf("sandbox %s: %w", record.ID, err))
			return
		}
		r.found.Halves++
	}
}

// strays are ids of which a directory or a checkpoint is left, but no record.
func (r *recovery) strays() map[string]bool {
	out := map[string]bool{}
	entries, _ := os.ReadDir(r.boxes.path("sandboxes"))
	for _, entry := range entries {
		out[entry.Name()] = true
	}
	for id := range r.marked {
		out[id] = true
	}
	for _, b := range r.broken {
		out[b.ID] = true
	}
	for _, id := range r.boxes.ids() {
		delete(out, id)
	}
	return out
}

// eraseStray removes what is left of a sandbox whose record is gone. When the checkpoint says that it had a network,
// that is given back by the networks as they are now; the cache knows better, if there is an entry.
func (r *recovery) eraseStray(ctx context.Context, id string) error {
	var errs []error
	if mark, ok := r.marked[id]; ok && !mark.HostNetwork {
		record := Record{ID: id, Netns: mark.Netns, Config: PodConfig{
			Namespace: mark.Namespace, Name: mark.Name, UID: mark.UID, PortMappings: mark.PortMappings,
		}}
		if as, err := network.Plan(r.cfg.Networks()); err == nil {
			errs = append(errs, r.cfg.Net.TearDownPod(ctx, r.netPod(record), as))
		}
	}
	errs = append(errs, process.KillMarked(ctx, container.Mark, id), os.RemoveAll(r.boxes.dir(id)))
	return errors.Join(errs...)
}

// namespaces removes those that are bound for no sandbox.
func (r *recovery) namespaces() {
	entries, _ := os.ReadDir(r.boxes.path("netns"))
	for _, entry := range entries {
		if !r.live(entry.Name()) {
			r.count(&r.found.Namespaces, netns.Remove(r.boxes.path("netns", entry.Name())))
		}
	}
}

// names gives back those that no sandbox has.
func (r *recovery) names() {
	entries, _ := os.ReadDir(r.boxes.path("names"))
	for _, entry := range entries {
		path := r.boxes.path("names", entry.Name())
		b, err := os.ReadFile(path)
		if err == nil && r.live(strings.TrimSpace(string(b))) && !strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		r.count(&r.found.Names, os.Remove(path))
	}
}
