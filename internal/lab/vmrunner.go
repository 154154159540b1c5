// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
)

// vmRunner runs the VMs of one node that are added to the store of a running lab, in pods that it adds, and ends the VMs of
// the node whose objects are deleted there: the files of the node's VMs name them, whatever process started them.
type vmRunner struct {
	Up
	node  string
	store *dir.Store
	died  func(error)
	// stopPod stops a pod, and returns when it is gone.
	stopPod func(context.Context, podKey) error
	wait    *sync.WaitGroup

	mu      sync.Mutex
	started map[string]bool // VMs by namespace/name that this process started; guarded by mu
}

// sync starts and ends VMs. The VMs of `weft lab up` have their pods already, and their files are there. leads reports
// whether this runner adds pods of VMs to the store.
func (r *vmRunner) sync(ctx context.Context, objects []store.Object, pods []model.Pod, leads bool) error {
	errs := []error{r.endDeleted(ctx, pods)}
	for _, o := range objects {
		if !IsVM(o) {
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
		if i < 0 && leads {
			errs = append(errs, r.addPod(ctx, l))
		} else if i < 0 {
			continue
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
	if r.started[key] {
		return nil
	}
	if _, err := os.Stat(launch.VMDir(r.Dir.VMs(r.node), key) + ".yaml"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.started[key] = true
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
	if r.started[key] {
		r.died(err)
	}
}

// endDeleted ends the VMs that the store does not have anymore, and deletes their pods. While a file of the store cannot
// be read, all are still there.
func (r *vmRunner) endDeleted(ctx context.Context, pods []model.Pod) error {
	files, err := filepath.Glob(filepath.Join(r.Dir.VMs(r.node), "*.yaml"))
	if err != nil || len(files) == 0 {
		return err
	}
	if problems, err := r.store.Problems(); err != nil || len(problems) > 0 {
		return err
	}
	var errs []error
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		o, err := store.NewObject(raw)
		if err != nil {
			continue // another program's: the lab writes what it has read from the store
		}
		if _, err := r.store.Get(o.Key); !errors.Is(err, store.ErrNotFound) {
			continue
		}
		errs = append(errs, r.end(ctx, o.Key.Namespace, o.Key.Name, pods))
	}
	return errors.Join(errs...)
}

// end ends a VM, and removes its files and its pods on this node. It can be repeated after any of its steps: the VM's
// manifest is removed last.
func (r *vmRunner) end(ctx context.Context, namespace, name string, pods []model.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	key := namespace + "/" + name
	r.mu.Lock()
	delete(r.started, key)
	r.mu.Unlock()
	at := launch.VMDir(r.Dir.VMs(r.node), key)
	st, found, err := launch.Read(at)
	if err == nil && found {
		err = quitVM(ctx, st)
	}
	if err != nil {
		return err
	}
	if err := os.RemoveAll(at); err != nil {
		return fmt.Errorf("VM %s: %w", key, err)
	}
	for _, p := range pods {
		if p.Namespace != namespace || p.Annotations[launch.DomainAnnotation] != name || p.Node != r.node {
			continue
		}
		pod := store.PodKey(p.Namespace, p.Name)
		if err := r.stopPod(ctx, podKey{p.Namespace, p.Name}); err != nil {
			return fmt.Errorf("%s: %w", pod, err)
		}
		if err := r.store.Delete(ctx, pod, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s: %w", pod, err)
		}
	}
	if err := r.deleteClaims(ctx, namespace, name); err != nil {
		return err
	}
	for _, path := range []string{at + ".log", at + ".yaml"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("VM %s: %w", key, err)
		}
	}
	return nil
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
