// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

const (
	// instancePeriod is how often the instance of an awaited VM is read, instancePeriodMax the longest period if it cannot be read.
	instancePeriod, instancePeriodMax = time.Second, 10 * time.Second
)

// instance is the part of a VirtualMachineInstance that says where the VM runs.
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

// allows reports whether the pod may take over the VM's addresses: it is the target of the VM's migration, or the
// source of one that has not completed or has failed.
func (i instance) allows(pod string) bool {
	m := i.Status.Migration
	if m == nil || pod == "" {
		return false
	}
	return m.TargetPod == pod && !m.Failed || m.SourcePod == pod && (m.Failed || !m.Completed)
}

// on reports whether the VM runs on a node that awaits it. The status of another migration does not count: nodeName
// changes some time after the VM has left this node.
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

// status is the instance's status for an awaited VM: whether the pod may take over its addresses, and whether it runs
// here.
type status struct{ allowed, here bool }

// watchInstance reads the VM's instance until ctx ends, and sends its status when that changes. It is needed because a guest
// behind masquerade may send no packets. A read error changes nothing: a pod that was not allowed to take over the
// addresses stays so.
func (f *vmFollower) watchInstance(ctx context.Context) <-chan status {
	statuses := make(chan status)
	go func() {
		var was status
		wait, said := instancePeriod, false
		for {
			now, err := f.read(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err == nil:
				wait = instancePeriod
			case !said:
				f.logUnreadable(ctx, err)
				said = true
			default:
				wait = min(2*wait, instancePeriodMax)
			}
			if known := err == nil || errors.Is(err, store.ErrNotFound); known && now != was {
				select {
				case statuses <- now:
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
	return statuses
}

// read reads the instance. If there is none, a move may allow the pod to take over the addresses.
func (f *vmFollower) read(ctx context.Context) (status, error) {
	kind := store.VirtualMachineInstances()
	o, err := f.m.cfg.Objects.Get(ctx, kind, kind.Key(f.vm.Namespace, f.vm.Name))
	if errors.Is(err, store.ErrNotFound) {
		return status{allowed: f.pod == "" || f.m.allowed(f)}, err
	}
	if err != nil {
		return status{}, err
	}
	var i instance
	if err := json.Unmarshal(o.Raw, &i); err != nil {
		return status{}, err
	}
	allowed := f.pod == "" || i.allows(f.pod)
	return status{allowed: allowed, here: allowed && i.on(f.m.cfg.Node)}, nil
}

// logUnreadable logs that the instance could not be read. Without KubeVirt there is none.
func (f *vmFollower) logUnreadable(ctx context.Context, err error) {
	level := slog.LevelWarn
	if errors.Is(err, store.ErrNotFound) {
		level = slog.LevelInfo
	}
	f.m.cfg.Log.Log(ctx, level, "status of a VM could not be read, and only its packets show where it runs", "vm",
		f.vm.String(), "err", err)
}
