// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// vmRunner runs the VMs of one node that are added to the store of a running lab, in pods that it adds, and ends those that
// it started when they are deleted there.
type vmRunner struct {
	Up
	node  string
	store *dir.Store
	died  func(error)
	// stopPod stops a pod, and returns when it is gone.
	stopPod func(context.Context, podKey) error
	wait    *sync.WaitGroup

	mu      sync.Mutex
	started map[string]store.Key // VMs by namespace/name, with their objects; guarded by mu
}

// sync starts and ends VMs. The VMs of `weft lab up` have their pods already, and their files are there.
func (r *vmRunner) sync(ctx context.Context, objects []store.Object, pods []model.Pod) error {
	errs := []error{r.endDeleted(ctx)}
	for _, o := range objects {
		if !isVM(o) {
			continue
		}
		l, err := manifest.ReadLaunch(o.Raw, manifest.Options{})
		if err != nil {
			errs = append(errs, fmt.Errorf("VM %s: %w", o.Key.Name, err))
			continue
		}
		i := slices.IndexFunc(pods, func(p model.Pod) bool {
			return p.Namespace == l.VM.Namespace && p.Annotations[launch.DomainAnnotation] == l.VM.Name
		})
		if i < 0 {
			errs = append(errs, r.addPod(ctx, l))
		} else if p := pods[i]; p.Name == launch.PodName(l.VM.Name) && p.Node == r.node && p.Phase == "Running" {
			errs = append(errs, r.start(ctx, l, o))
		}
	}
	return errors.Join(errs...)
}

// addPod adds a VM's pod to the store. Another node may have added it.
func (r *vmRunner) addPod(ctx context.Context, l manifest.Launch) error {
	text, err := launch.PodManifest(l, []string{"sleep", "infinity"})
	if err != nil {
		return err
	}
	pod, err := store.NewObject(text)
	if err == nil {
		_, err = r.store.Create(ctx, pod)
	}
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("pod of VM %s: %w", l.VM.Key(), err)
	}
	return nil
}

// start starts a VM in its pod, once, in the background.
func (r *vmRunner) start(ctx context.Context, l manifest.Launch, o store.Object) error {
	key := l.VM.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, started := r.started[key]; started {
		return nil
	}
	if _, err := os.Stat(launch.VMDir(r.Dir.VMs(r.node), key) + ".yaml"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.started[key] = o.Key
	r.wait.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, bootTimeout)
		defer cancel()
		err := r.runVM(ctx, labVM{Launch: l, raw: o.Raw, node: r.node}, func(err error) { r.ended(key, err) })
		if err != nil && ctx.Err() == nil {
			r.ended(key, fmt.Errorf("VM %s: %w", key, err))
		}
	})
	return nil
}

// ended reports the end of a VM that was not deleted.
func (r *vmRunner) ended(key string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, wanted := r.started[key]; wanted {
		r.died(err)
	}
}

// endDeleted ends the VMs that the store does not have anymore, and deletes their pods.
func (r *vmRunner) endDeleted(ctx context.Context) error {
	var errs []error
	for key, object := range r.deleted() {
		if err := r.end(ctx, key); err != nil {
			r.mu.Lock()
			r.started[key] = object // try again
			r.mu.Unlock()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deleted forgets the VMs that were deleted, and returns them.
func (r *vmRunner) deleted() map[string]store.Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]store.Key{}
	for key, object := range r.started {
		if _, err := r.store.Get(object); errors.Is(err, store.ErrNotFound) {
			out[key] = object
			delete(r.started, key)
		}
	}
	return out
}

// end ends a VM, and removes its files and its pod.
func (r *vmRunner) end(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	at := launch.VMDir(r.Dir.VMs(r.node), key)
	st, found, err := launch.Read(at)
	if err == nil && found {
		err = quitVM(ctx, st)
	}
	if err != nil {
		return err
	}
	for _, path := range []string{at + ".yaml", at + ".log"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("VM %s: %w", key, err)
		}
	}
	if err := os.RemoveAll(at); err != nil {
		return fmt.Errorf("VM %s: %w", key, err)
	}
	namespace, name, _ := strings.Cut(key, "/")
	pod := store.PodKey(namespace, launch.PodName(name))
	if err := r.stopPod(ctx, podKey{namespace, pod.Name}); err != nil {
		return fmt.Errorf("%s: %w", pod, err)
	}
	if err := r.store.Delete(ctx, pod, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s: %w", pod, err)
	}
	return r.deleteClaims(ctx, namespace, name)
}

// deleteClaims releases the addresses of a VM that was deleted, as weft-controller does in a cluster.
func (r *vmRunner) deleteClaims(ctx context.Context, namespace, name string) error {
	all, err := r.store.List("")
	if err != nil {
		return err
	}
	for _, o := range all {
		if !o.Key.Of(store.AddressClaims()) || o.Key.Namespace != namespace {
			continue
		}
		if c, err := o.AddressClaim(); err != nil || c.VM.Name != name {
			continue
		}
		if err := r.store.Delete(ctx, o.Key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
	}
	return nil
}
