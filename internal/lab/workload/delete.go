// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
)

// Delete deletes the objects of manifests, read as Apply reads them, and waits until their pods have ended. Objects that do
// not exist are reported, and are no error: an earlier call may have deleted them.
func (c Changer) Delete(ctx context.Context, paths []string, stdin io.Reader) error {
	objects, err := read(paths, stdin)
	if err != nil {
		return err
	}
	var keys []store.Key
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return c.DeleteKeys(ctx, keys, false)
}

// DeleteKeys deletes objects by name. With mustExist, one that does not exist is an error, before anything is deleted.
func (c Changer) DeleteKeys(ctx context.Context, keys []store.Key, mustExist bool) error {
	ending, layout, err := c.delete(ctx, keys, mustExist)
	if err != nil {
		return err
	}
	return c.Until(ctx, "not ended", func() ([]string, error) { return c.running(ctx, layout, ending) })
}

func (c Changer) delete(ctx context.Context, keys []store.Key, mustExist bool) (ending map[string]bool, l layout.Layout, err error) {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return nil, l, err
	}
	defer unlock()
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return nil, l, err
	}
	objects, err := s.List("")
	if err != nil {
		return nil, l, err
	}
	for _, k := range keys {
		if k == store.NodeKey(k.Name) {
			return nil, l, model.Errorf(model.CodeInvalidConf, "use `weft lab remove-node "+k.Name+"`", "%s is not deleted as an object", k)
		}
		if mustExist && !slices.ContainsFunc(objects, func(o store.Object) bool { return o.Key == k }) {
			return nil, l, notFound(k)
		}
	}
	keys = withContents(keys, objects)
	ending = podsOf(keys, objects)
	for _, k := range keys {
		err := s.Delete(ctx, k, "")
		switch {
		case errors.Is(err, store.ErrNotFound):
			c.Logf("%s does not exist", k)
		case err != nil:
			return nil, l, fmt.Errorf("%s: %w", k, err)
		default:
			c.Logf("%s deleted", k)
		}
	}
	return ending, m.Layout, nil
}

// withContents adds what is in namespaces, and sorts the keys so that nothing that is deleted is created again: owners of pods
// first, namespaces last.
func withContents(keys []store.Key, objects []store.Object) []store.Key {
	for _, k := range slices.Clone(keys) {
		for _, o := range objects {
			if k == store.NamespaceKey(k.Name) && o.Key.Namespace == k.Name && !slices.Contains(keys, o.Key) {
				keys = append(keys, o.Key)
			}
		}
	}
	rank := func(k store.Key) int {
		switch {
		case replicas.IsKey(k) || k.Group == "kubevirt.io":
			return 0
		case k == store.NamespaceKey(k.Name):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(keys, func(a, b store.Key) int { return cmp.Compare(rank(a), rank(b)) })
	return keys
}

// podsOf returns the UIDs of the pods that end with the keys: of pods, of replicas and of VMs.
func podsOf(keys []store.Key, objects []store.Object) map[string]bool {
	cluster, _ := store.Cluster(objects)
	out := map[string]bool{}
	for _, p := range cluster.Pods {
		for _, k := range keys {
			if k == store.PodKey(p.Namespace, p.Name) || replicas.Owned(p, k) ||
				k.Group == "kubevirt.io" && k.Namespace == p.Namespace && p.Annotations[launch.DomainAnnotation] == k.Name {
				out[p.UID] = true
			}
		}
	}
	return out
}

// running lists the pods of UIDs that some runtime has.
func (c Changer) running(ctx context.Context, l layout.Layout, uids map[string]bool) ([]string, error) {
	if len(uids) == 0 {
		return nil, nil
	}
	var out []string
	for _, n := range l.Nodes {
		pods, err := c.Dir.Sandboxes(n.Name).List(ctx)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
		for _, p := range pods {
			if uids[p.UID] {
				out = append(out, fmt.Sprintf("pod %s/%s on %s is %s", p.Namespace, p.Name, n.Name, p.State))
			}
		}
	}
	return out, nil
}
