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
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// followEvery is how often a node looks for pods that are new in the store. It needs none of the few inotify instances
// that way.
const followEvery = time.Second

// Follower runs the pods of one node that are written into the store of a lab that is up.
type Follower struct {
	Dir   Dir
	Node  string
	Log   *slog.Logger
	After func(time.Duration) <-chan time.Time
}

// Follow looks until ctx ends.
func (f Follower) Follow(ctx context.Context) {
	r := &following{Follower: f, tried: map[podKey]string{}}
	defer r.wait.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.After(followEvery):
		}
		if err := r.look(ctx); err != nil && ctx.Err() == nil && err.Error() != r.said {
			r.said = err.Error()
			f.Log.Warn("pods of the lab's store are not looked at", "err", err)
		}
	}
}

type following struct {
	Follower
	store *dir.Store
	said  string
	wait  sync.WaitGroup
	// tried are the versions of pods that were begun: what has failed waits until its manifest is another one.
	tried map[podKey]string
}

// look begins what is new. Pods that have a status were begun before, by `up` or from here; what became of them is the
// runtime's.
func (r *following) look(ctx context.Context) error {
	m, err := r.Dir.Open()
	if err != nil || m.Phase != phaseUp {
		return err
	}
	if r.store == nil {
		if r.store, err = dir.Open(r.Dir.Store()); err != nil {
			return err
		}
	}
	objects, err := r.store.List("")
	if err != nil {
		return err
	}
	c, _ := store.Cluster(objects)
	c.Nodes = nil // which nodes there are the lab says
	c.Pods = slices.DeleteFunc(c.Pods, func(p model.Pod) bool {
		return p.Node != "" && len(m.Layout.find(p.Node).Addrs[0]) == 0
	})
	pods, err := place(c, m.Layout)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		if p.Node == r.Node && p.Phase == "" && len(p.IPs) == 0 {
			errs = append(errs, r.begin(ctx, m.Layout, c, p))
		}
	}
	return errors.Join(errs...)
}

// begin runs a pod, beside the others.
func (r *following) begin(ctx context.Context, l Layout, c model.Cluster, p model.Pod) error {
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
	u := Up{Dir: r.Dir, Say: func(format string, args ...any) { r.Log.Info(fmt.Sprintf(format, args...)) }}
	r.wait.Go(func() {
		box, err := u.runPod(ctx, r.store, p)
		if err == nil {
			err = publish(ctx, r.store, l.find(p.Node), box)
		}
		if err != nil && ctx.Err() == nil {
			r.Log.Error("pod of the lab's store does not run", "pod", p.Namespace+"/"+p.Name, "err", err)
		}
	})
	return nil
}
