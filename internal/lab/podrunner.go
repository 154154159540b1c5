// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// syncInterval is the time between two checks for new pods in the store. Polling needs no inotify instance, of which the
// kernel allows only a few.
const syncInterval = time.Second

// PodRunner runs the pods and VMs of one node that are added to the store of a running lab, and stops those that it
// started when they are deleted there.
type PodRunner struct {
	Dir  Dir
	Node string
	// Self is this program, and Env the environment of VMs' processes.
	Self  string
	Env   []string
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Run runs pods until ctx ends.
func (f PodRunner) Run(ctx context.Context) {
	r := &podRunner{PodRunner: f, tried: map[podKey]string{}}
	defer r.wait.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.After(syncInterval):
		}
		if err := r.sync(ctx); err != nil && ctx.Err() == nil && err.Error() != r.lastErr {
			r.lastErr = err.Error()
			f.Log.Warn("pods of the lab's store cannot be synced", "err", err)
		}
	}
}

type podRunner struct {
	PodRunner
	store   *dir.Store
	vms     *vmRunner
	lastErr string // logged only once
	wait    sync.WaitGroup
	// tried are the versions of pods that were started. A pod that failed is retried when its manifest changes.
	tried map[podKey]string
}

// sync starts new pods. Pods with a status were started before, by `up` or by this runner.
func (r *podRunner) sync(ctx context.Context) error {
	m, err := r.Dir.Open()
	if err != nil || m.Phase != phaseUp {
		return err
	}
	if r.store == nil {
		if r.store, err = dir.Open(r.Dir.Store()); err != nil {
			return err
		}
		r.vms = &vmRunner{
			Up: Up{Dir: r.Dir, Self: r.Self, Env: r.Env}, node: r.Node, store: r.store, started: map[string]store.Key{},
			died:    func(err error) { r.Log.Error("VM of the lab's store ended", "err", err) },
			stopPod: r.stop, wait: &r.wait,
		}
	}
	objects, err := r.store.List("")
	if err != nil {
		return err
	}
	c, _ := store.Cluster(objects)
	c.Nodes = nil // the layout has the nodes
	c.Pods = slices.DeleteFunc(c.Pods, func(p model.Pod) bool {
		return p.Node != "" && len(m.Layout.findNode(p.Node).Addrs[0]) == 0
	})
	pods, err := schedule(c, m.Layout)
	if err != nil {
		return err
	}
	errs := []error{r.stopDeleted(ctx), r.vms.sync(ctx, objects, c.Pods)}
	for _, p := range pods {
		if p.Node == r.Node && p.Phase == "" && len(p.IPs) == 0 {
			errs = append(errs, r.start(ctx, m.Layout, c, p))
		}
	}
	return errors.Join(errs...)
}

// stopDeleted stops the pods that the store does not have anymore, and waits until they are gone, because new pods may
// need their ports. An object of a file that cannot be read is still there.
func (r *podRunner) stopDeleted(ctx context.Context) error {
	var errs []error
	for key := range r.tried {
		if _, err := r.store.Get(store.PodKey(key.namespace, key.name)); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err := r.stop(ctx, key); err != nil {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", key.namespace, key.name, err))
			continue
		}
		delete(r.tried, key)
	}
	return errors.Join(errs...)
}

func (r *podRunner) stop(ctx context.Context, key podKey) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	runtime, grace := r.Dir.Sandboxes(r.Node), time.Duration(0)
	err := runtime.Stop(ctx, key.namespace, key.name, &grace, true)
	if f := (*model.Error)(nil); errors.As(err, &f) && f.Code == model.CodeUnknownContainer {
		return nil
	}
	if err != nil {
		return err
	}
	return runtime.Watch(ctx, key.namespace, key.name, func(d *sandbox.Detail) (bool, error) { return d == nil, nil })
}

// start runs a pod in the background.
func (r *podRunner) start(ctx context.Context, l Layout, c model.Cluster, p model.Pod) error {
	key := podKey{p.Namespace, p.Name}
	o, err := r.store.Get(store.PodKey(p.Namespace, p.Name))
	if err != nil || r.tried[key] == o.Version {
		return err
	}
	r.tried[key] = o.Version
	if _, _, err := pod.Parse(o.Raw, "manifest"); err != nil {
		return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if err := writePods(ctx, r.store, c, []model.Pod{p}); err != nil {
		return err
	}
	if o, err = r.store.Get(o.Key); err != nil {
		return err
	}
	r.tried[key] = o.Version
	u := Up{Dir: r.Dir, Logf: func(format string, args ...any) { r.Log.Info(fmt.Sprintf(format, args...)) }}
	r.wait.Go(func() {
		running, err := u.runPod(ctx, r.store, p)
		if err == nil {
			err = writePodStatus(ctx, r.store, l.findNode(p.Node), running)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Error("pod of the lab's store failed to start", "pod", p.Namespace+"/"+p.Name, "err", err)
		}
	})
	return nil
}
