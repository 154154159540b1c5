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
	var rep Report
	if err := e.awaitPlugins(ctx); err != nil {
		return rep, err
	}
	good, broken, err := e.marks.List()
	if err != nil {
		return rep, err
	}
	marks := map[string]checkpoint.Checkpoint{}
	for _, c := range good {
		marks[c.ID] = c
	}
	var errs []error
	keep := func(n *int, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		*n++
	}
	for _, b := range broken {
		e.log.Warn("checkpoint cannot be read, its sandbox is asked instead", "error", b.Err)
	}
	for _, id := range e.ids() {
		if r, err := e.box(id); err == nil {
			e.recoverBox(ctx, r, marks, keep, &rep)
		}
	}
	for id := range e.strays(marks, broken) {
		mark, ok := marks[id]
		keep(&rep.Halves, e.eraseStray(ctx, id, mark, ok))
	}
	live := func(id string) bool { _, err := e.box(id); return err == nil }
	rep.Cached, err = e.cfg.Net.Leftovers(ctx, e.path("netns"), live)
	if err != nil {
		errs = append(errs, err)
	}
	e.recoverNetns(live, keep, &rep)
	for id := range marks {
		if !live(id) {
			keep(&rep.Checkpoints, e.marks.Remove(id))
		}
	}
	for _, b := range broken {
		if !live(b.ID) {
			keep(&rep.Checkpoints, e.marks.Remove(b.ID))
		}
	}
	e.recoverNames(live, keep, &rep)
	return rep, errors.Join(errs...)
}

// awaitPlugins waits for plugins that a killed runtime was executing: an ADD that ends after its DEL would leak. One
// that does not end is killed.
func (e *Engine) awaitPlugins(ctx context.Context) error {
	const patience = 30 * time.Second
	known := map[string]bool{}
	for _, id := range e.ids() {
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

// recoverBox keeps a sandbox that has both a record and a checkpoint; it may be not ready, that is the kubelet's to
// judge. One without checkpoint was killed while it was made or removed.
func (e *Engine) recoverBox(
	ctx context.Context, r Record, marks map[string]checkpoint.Checkpoint, keep func(*int, error), rep *Report,
) {
	switch _, marked := marks[r.ID]; {
	case marked:
		rep.Sandboxes++
	case e.inspect(r).State == Ready:
		// Its checkpoint was lost, it was not killed half-way.
		keep(&rep.Checkpoints, e.marks.Write(r.checkpoint()))
		rep.Sandboxes++
	default:
		if err := e.RemovePodSandbox(ctx, r.ID); err != nil {
			keep(&rep.Halves, fmt.Errorf("sandbox %s: %w", r.ID, err))
			return
		}
		rep.Halves++
	}
}

// strays are ids of which a directory or a checkpoint is left, but no record.
func (e *Engine) strays(marks map[string]checkpoint.Checkpoint, broken []checkpoint.Broken) map[string]bool {
	out := map[string]bool{}
	entries, _ := os.ReadDir(e.path("sandboxes"))
	for _, entry := range entries {
		out[entry.Name()] = true
	}
	for id := range marks {
		out[id] = true
	}
	for _, b := range broken {
		out[b.ID] = true
	}
	for _, id := range e.ids() {
		delete(out, id)
	}
	return out
}

// eraseStray removes what is left of a sandbox whose record is gone. When the checkpoint says that it had a network,
// that is given back by the networks as they are now; the cache knows better, if there is an entry.
func (e *Engine) eraseStray(ctx context.Context, id string, mark checkpoint.Checkpoint, marked bool) error {
	var errs []error
	if marked && !mark.HostNetwork {
		r := Record{ID: id, Netns: mark.Netns, Config: PodConfig{
			Namespace: mark.Namespace, Name: mark.Name, UID: mark.UID, PortMappings: mark.PortMappings,
		}}
		if as, err := network.Plan(e.cfg.Networks()); err == nil {
			errs = append(errs, e.cfg.Net.TearDownPod(ctx, e.netPod(r), as))
		}
	}
	errs = append(errs, process.KillMarked(ctx, container.Mark, id), os.RemoveAll(e.dir(id)))
	return errors.Join(errs...)
}

func (e *Engine) recoverNetns(live func(string) bool, keep func(*int, error), rep *Report) {
	entries, _ := os.ReadDir(e.path("netns"))
	for _, entry := range entries {
		if !live(entry.Name()) {
			keep(&rep.Namespaces, netns.Remove(e.path("netns", entry.Name())))
		}
	}
}

func (e *Engine) recoverNames(live func(string) bool, keep func(*int, error), rep *Report) {
	entries, _ := os.ReadDir(e.path("names"))
	for _, entry := range entries {
		path := e.path("names", entry.Name())
		b, err := os.ReadFile(path)
		if err == nil && live(strings.TrimSpace(string(b))) && !strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		keep(&rep.Names, os.Remove(path))
	}
}
