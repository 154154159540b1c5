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
	"github.com/weft-net/weft/internal/lab/layout"
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
	r := &podRunner{PodRunner: f, tried: map[podKey]string{}, starting: map[string]starting{}}
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
	// starting are the pods that this process is starting or has started, by UID.
	starting map[string]starting
}

// starting is the start of a pod, which can be canceled and awaited.
type starting struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// sync starts new pods and stops deleted ones. Pods with a status were started before, by `up` or by a runner.
func (r *podRunner) sync(ctx context.Context) error {
	m, err := r.Dir.Open()
	if err != nil || m.Phase != phaseUp {
		return err
	}
	if r.store == nil {
		if r.store, err = dir.Open(r.Dir.Store()); err != nil {
			return err
		}
		r.store.Follow(ctx)
		r.vms = &vmRunner{
			Up: Up{Dir: r.Dir, Self: r.Self, Env: r.Env}, node: r.Node, store: r.store, started: map[string]bool{},
			died:    func(err error) { r.Log.Error("VM of the lab's store ended", "err", err) },
			stopPod: r.stop, wait: &r.wait,
		}
	}
	objects, err := r.store.List("")
	if err != nil {
		return err
	}
	// The layout is read after the objects: a pod is bound to a node when the layout has the node.
	if m, err = r.Dir.Open(); err != nil || m.Phase != phaseUp {
		return err
	}
	leads := r.leads(m.Layout)
	var errs []error
	if leads {
		errs = append(errs, controller{r.store}.sync(ctx, objects, m.Layout))
	}
	c, _ := store.Cluster(objects)
	errs = append(errs, r.vms.sync(ctx, objects, c.Pods, leads), r.stopDeleted(ctx, c.Pods))
	for _, p := range c.Pods {
		if p.Node == r.Node && p.Phase == "" && len(p.IPs) == 0 {
			errs = append(errs, r.start(ctx, m.Layout, c, p))
		}
	}
	return errors.Join(errs...)
}

// leads reports whether this runner runs the lab's controller: that of the first node whose runtime is running.
func (r *podRunner) leads(l layout.Layout) bool {
	for _, n := range l.Nodes {
		if n.Name == r.Node || r.Dir.running(n.Name, roleSandbox) {
			return n.Name == r.Node
		}
	}
	return false
}

// stopDeleted stops the pods that the lab started on this node and the store does not have anymore, or has as another pod,
// and waits until they are gone, because new pods may need their ports. While a file of the store cannot be read, all
// are still there.
func (r *podRunner) stopDeleted(ctx context.Context, pods []model.Pod) error {
	if problems, err := r.store.Problems(); err != nil || len(problems) > 0 {
		return err
	}
	records, err := r.Dir.podRecords(r.Node)
	if err != nil {
		return err
	}
	var errs []error
	for uid, key := range records {
		if slices.ContainsFunc(pods, func(p model.Pod) bool { return p.UID == uid && p.Node == r.Node }) {
			continue
		}
		if err := r.stopRecorded(ctx, uid, key); err != nil {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", key.namespace, key.name, err))
			continue
		}
		delete(r.tried, key)
	}
	return errors.Join(errs...)
}

// stopRecorded stops a pod of a UID, unless another pod has its name by now, and removes its record.
func (r *podRunner) stopRecorded(ctx context.Context, uid string, key podKey) error {
	if s, ok := r.starting[uid]; ok {
		s.cancel()
		<-s.done
		delete(r.starting, uid)
	}
	have, err := r.Dir.Sandboxes(r.Node).Get(ctx, key.namespace, key.name)
	switch {
	case isUnknownPod(err):
	case err != nil:
		return err
	case have.UID == uid:
		if err := r.stop(ctx, key); err != nil {
			return err
		}
	}
	return r.Dir.forgetPod(r.Node, uid)
}

func isUnknownPod(err error) bool {
	var f *model.Error
	return errors.As(err, &f) && f.Code == model.CodeUnknownContainer
}

func (r *podRunner) stop(ctx context.Context, key podKey) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	runtime, grace := r.Dir.Sandboxes(r.Node), time.Duration(0)
	err := runtime.Stop(ctx, key.namespace, key.name, &grace, true)
	if isUnknownPod(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return runtime.Watch(ctx, key.namespace, key.name, func(d *sandbox.Detail) (bool, error) { return d == nil, nil })
}

// start runs a pod in the background.
func (r *podRunner) start(ctx context.Context, l layout.Layout, c model.Cluster, p model.Pod) error {
	key := podKey{p.Namespace, p.Name}
	o, err := r.store.Get(store.PodKey(p.Namespace, p.Name))
	if err != nil || r.tried[key] == o.Version {
		return err
	}
	if now, err := o.Pod(); err != nil || now.UID != p.UID {
		return err // replaced meanwhile: the next sync has the other one
	}
	r.tried[key] = o.Version
	if _, _, err := pod.Parse(o.Raw, "manifest"); err != nil {
		return fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if err := createNamespaces(ctx, r.store, c, []model.Pod{p}); err != nil {
		return err
	}
	if o, err = r.store.Modify(ctx, o.Key, setUID(p.UID)); err != nil {
		return err
	}
	if now, err := o.Pod(); err != nil || now.UID != p.UID {
		return err
	}
	r.tried[key] = o.Version
	u := Up{Dir: r.Dir, Logf: func(format string, args ...any) { r.Log.Info(fmt.Sprintf(format, args...)) }}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	r.starting[p.UID] = starting{cancel, done}
	r.wait.Go(func() {
		defer close(done)
		defer cancel()
		running, err := u.runPod(ctx, r.store, p)
		if err == nil {
			err = writePodStatus(ctx, r.store, l.Find(p.Node), running)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Error("pod of the lab's store failed to start", "pod", p.Namespace+"/"+p.Name, "err", err)
		}
	})
	return nil
}
