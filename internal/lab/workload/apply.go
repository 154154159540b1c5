// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/replicas"
)

// Changer changes the workloads of a lab.
type Changer struct {
	Dir  lab.Dir
	Logf lab.Progress
	// Wait bounds the time until what has changed runs, or has ended; 0 does not wait.
	Wait time.Duration
}

// Apply creates or updates the objects of files, of the manifests in directories, and of stdin ("-"). Nothing is written if
// one of them is invalid. A pod whose spec differs is replaced.
func (c Changer) Apply(ctx context.Context, paths []string, stdin io.Reader) error {
	objects, err := read(paths, stdin)
	if err != nil {
		return err
	}
	applied, err := c.write(ctx, objects)
	if err != nil {
		return err
	}
	return c.await(ctx, applied)
}

func (c Changer) write(ctx context.Context, objects []store.Object) ([]store.Object, error) {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := validate(objects, m.Layout); err != nil {
		return nil, err
	}
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return nil, err
	}
	for i, o := range objects {
		verb := ""
		if objects[i], verb, err = put(ctx, s, o); err != nil {
			return nil, err
		}
		note := ""
		switch {
		case !lab.Handles(o):
			note = " (nothing in a lab handles it)"
		case lab.IsVM(o) && verb == configured:
			note = " (a VM that runs keeps its configuration until it is deleted)"
		}
		c.Logf("%s %s%s", o.Key, verb, note)
	}
	return objects, nil
}

// What became of an object.
const (
	created    = "created"
	configured = "configured"
	replaced   = "replaced"
	unchanged  = "unchanged"
)

// put creates or updates one object.
func put(ctx context.Context, s *dir.Store, o store.Object) (store.Object, string, error) {
	for {
		have, err := s.Get(o.Key)
		if errors.Is(err, store.ErrNotFound) {
			if o, err = o.Edited(identify); err != nil {
				return o, "", err
			}
			made, err := s.Create(ctx, o)
			if errors.Is(err, store.ErrExists) {
				if _, missing := s.Get(o.Key); missing == nil {
					continue // created meanwhile
				}
			}
			return made, created, err
		}
		if err != nil {
			return o, "", err
		}
		next, verb, err := merge(have, o)
		if err == nil && next.Version == have.Version {
			return have, unchanged, nil
		}
		if err == nil {
			err = s.CompareAndSwap(ctx, have.Version, next)
		}
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			continue
		}
		return next, verb, err
	}
}

// identify is the edit that sets a new UID, if there is none.
func identify(fields map[string]any) error {
	if meta, ok := fields["metadata"].(map[string]any); ok && meta["uid"] == nil {
		meta["uid"] = replicas.NewUID()
	}
	return nil
}

// merge returns a manifest with what the lab has added to the object: UID, creation time, status, node and annotations. A pod
// whose spec differs gets a new UID and no status, so that its node replaces it.
func merge(have, manifest store.Object) (store.Object, string, error) {
	var old map[string]any
	if err := json.Unmarshal(have.Raw, &old); err != nil {
		return have, "", fmt.Errorf("%s: %w", have.Key, err)
	}
	verb := configured
	next, err := manifest.Edited(func(fields map[string]any) error {
		meta, _ := fields["metadata"].(map[string]any)
		oldMeta, _ := old["metadata"].(map[string]any)
		for _, name := range []string{"uid", "creationTimestamp", "namespace"} {
			if v := oldMeta[name]; v != nil {
				meta[name] = v
			}
		}
		annotations, _ := oldMeta["annotations"].(map[string]any)
		if more, ok := meta["annotations"].(map[string]any); ok && annotations != nil {
			maps.Copy(annotations, more)
		} else if ok {
			annotations = more
		}
		if annotations != nil {
			meta["annotations"] = annotations
		}
		if old["status"] != nil {
			fields["status"] = old["status"]
		}
		switch {
		case manifest.Is("Node") && old["spec"] != nil:
			fields["spec"] = old["spec"]
		case manifest.Is("Pod"):
			if replacesPod(fields, old) {
				verb, meta["uid"] = replaced, replicas.NewUID()
				delete(fields, "status")
			}
		}
		return nil
	})
	return next, verb, err
}

// replacesPod sets the node of the earlier pod, if the manifest names none, and reports whether the specs differ.
func replacesPod(fields, old map[string]any) bool {
	spec, _ := fields["spec"].(map[string]any)
	oldSpec, _ := old["spec"].(map[string]any)
	if spec["nodeName"] == nil && oldSpec["nodeName"] != nil {
		spec["nodeName"] = oldSpec["nodeName"]
	}
	a, b := normal(spec), normal(oldSpec)
	return !reflect.DeepEqual(a, b)
}

// normal returns a value as JSON decodes it, whatever types its numbers have.
func normal(v any) (out any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return v
	}
	return out
}

// Scale sets the number of replicas of a Deployment or a ReplicaSet.
func (c Changer) Scale(ctx context.Context, target store.Key, n int) error {
	unlock, _, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return err
	}
	o, err := s.Modify(ctx, target, func(fields map[string]any) error {
		if spec, ok := fields["spec"].(map[string]any); ok {
			spec["replicas"] = n
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return notFound(target)
	}
	if err == nil {
		_, err = replicas.Read(o)
	}
	if err != nil {
		return err
	}
	unlock()
	c.Logf("%s scaled to %d", target, n)
	return c.await(ctx, []store.Object{o})
}
