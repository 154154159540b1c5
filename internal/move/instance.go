// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/store"
)

const (
	// lookPeriod is how often the instance of a machine that is awaited is looked at, lookMost how seldom where it cannot be read.
	lookPeriod, lookMost = time.Second, 10 * time.Second
)

// instance is what a VirtualMachineInstance says of where its machine runs.
type instance struct {
	Status struct {
		NodeName  string `json:"nodeName"`
		Migration *struct {
			Target    string `json:"targetNode"`
			Ready     string `json:"targetNodeDomainReadyTimestamp"`
			Completed bool   `json:"completed"`
			Failed    bool   `json:"failed"`
		} `json:"migrationState"`
	} `json:"status"`
}

// on tells whether the machine runs on a node that awaits it. What is said there of another migration does not count: nodeName
// changes some time after the machine has gone on from here.
func (i instance) on(node string) bool {
	m := i.Status.Migration
	if m == nil || m.Target == "" {
		return i.Status.NodeName == node
	}
	if m.Failed || m.Target != node {
		return false
	}
	return i.Status.NodeName == node || m.Completed || m.Ready != ""
}

// look looks at the machine's instance until KubeVirt says there that it runs on this node, which it tells, or ctx ends. A guest
// behind masquerade may say nothing that anybody hears.
func (f *follower) look(ctx context.Context) <-chan struct{} {
	here := make(chan struct{}, 1)
	go func() {
		wait, said := lookPeriod, false
		for {
			is, err := f.runsHere(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case is:
				token(here)
				return
			case err == nil:
				wait = lookPeriod
			case !said:
				f.unseen(ctx, err)
				said = true
			default:
				wait = min(2*wait, lookMost)
			}
			select {
			case <-ctx.Done():
				return
			case <-f.m.cfg.After(wait):
			}
		}
	}()
	return here
}

// runsHere asks for the instance.
func (f *follower) runsHere(ctx context.Context) (bool, error) {
	kind := store.VirtualMachineInstances()
	o, err := f.m.cfg.Objects.Get(ctx, kind, kind.Key(f.vm.Namespace, f.vm.Name))
	if err != nil {
		return false, err
	}
	var i instance
	if err := json.Unmarshal(o.Raw, &i); err != nil {
		return false, err
	}
	return i.on(f.m.cfg.Node), nil
}

// unseen says that an instance cannot be read. Without KubeVirt there is none.
func (f *follower) unseen(ctx context.Context, err error) {
	level := slog.LevelWarn
	if errors.Is(err, store.ErrNotFound) {
		level = slog.LevelInfo
	}
	f.m.cfg.Log.Log(ctx, level, "machine's status does not say where it runs; other signs count", "machine", f.vm.String(), "err", err)
}
