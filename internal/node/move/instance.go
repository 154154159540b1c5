// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

const (
	// lookPeriod is how often the instance of a machine that is awaited is looked at, lookMost how seldom where it cannot
	// be read.
	lookPeriod, lookMost = time.Second, 10 * time.Second
)

// instance is what a VirtualMachineInstance says of where its machine runs.
type instance struct {
	Status struct {
		NodeName  string `json:"nodeName"`
		Migration *struct {
			Target    string `json:"targetNode"`
			TargetPod string `json:"targetPod"`
			SourcePod string `json:"sourcePod"`
			Ready     string `json:"targetNodeDomainReadyTimestamp"`
			Completed bool   `json:"completed"`
			Failed    bool   `json:"failed"`
		} `json:"migrationState"`
	} `json:"status"`
}

// allows reports whether the pod may take the machine's addresses over: it is the target of the machine's migration, or
// the source of one that has not come to its end or has failed.
func (i instance) allows(pod string) bool {
	m := i.Status.Migration
	if m == nil || pod == "" {
		return false
	}
	return m.TargetPod == pod && !m.Failed || m.SourcePod == pod && (m.Failed || !m.Completed)
}

// on tells whether the machine runs on a node that awaits it. What is said there of another migration does not count:
// nodeName changes some time after the machine has gone on from here.
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

// word is what the cluster says of a machine that is awaited: whether the pod may take its addresses over, and whether
// it runs here.
type word struct{ allowed, here bool }

// look reads the machine's instance until ctx ends, and tells what it says when that is something else than before. A
// guest behind masquerade may say nothing that anybody hears. What cannot be read changes nothing: a pod that was not
// allowed to take the addresses over stays so.
func (f *follower) look(ctx context.Context) <-chan word {
	words := make(chan word)
	go func() {
		var was word
		wait, said := lookPeriod, false
		for {
			now, err := f.read(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				wait = lookPeriod
			case !said:
				f.unseen(ctx, err)
				said = true
			default:
				wait = min(2*wait, lookMost)
			}
			if known := err == nil || errors.Is(err, store.ErrNotFound); known && now != was {
				select {
				case words <- now:
					was = now
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-f.reread:
			case <-f.m.cfg.After(wait):
			}
		}
	}()
	return words
}

// read reads the instance. Where there is none, a move says whether the pod may take the addresses over.
func (f *follower) read(ctx context.Context) (word, error) {
	kind := store.VirtualMachineInstances()
	o, err := f.m.cfg.Objects.Get(ctx, kind, kind.Key(f.vm.Namespace, f.vm.Name))
	if errors.Is(err, store.ErrNotFound) {
		return word{allowed: f.pod == "" || f.m.allowed(f)}, err
	}
	if err != nil {
		return word{}, err
	}
	var i instance
	if err := json.Unmarshal(o.Raw, &i); err != nil {
		return word{}, err
	}
	allowed := f.pod == "" || i.allows(f.pod)
	return word{allowed: allowed, here: allowed && i.on(f.m.cfg.Node)}, nil
}

// unseen says that an instance cannot be read. Without KubeVirt there is none.
func (f *follower) unseen(ctx context.Context, err error) {
	level := slog.LevelWarn
	if errors.Is(err, store.ErrNotFound) {
		level = slog.LevelInfo
	}
	f.m.cfg.Log.Log(ctx, level, "machine's status does not say where it runs; other signs count", "machine",
		f.vm.String(), "err", err)
}
