// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
)

// controller does in a lab what kube-controller-manager and kube-scheduler do in a cluster: it creates and deletes the pods
// of Deployments and ReplicaSets, and binds pods to nodes. It runs on one node, but two at a time do no harm: names of
// pods are derived, and a pod is bound only once.
type controller struct{ store *dir.Store }

func (c controller) sync(ctx context.Context, objects []store.Object, l layout.Layout) error {
	err := c.replicate(ctx, objects, l)
	now, listErr := c.store.List("")
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return errors.Join(err, c.bind(ctx, now, l))
}

// replicate creates and deletes the pods of Deployments and ReplicaSets. Those on nodes that are removed are replaced.
func (c controller) replicate(ctx context.Context, objects []store.Object, l layout.Layout) error {
	cluster, _ := store.Cluster(objects)
	var sets []store.Object
	for _, o := range objects {
		if replicas.Is(o) {
			sets = append(sets, o)
		}
	}
	var lost []store.Key
	pods := slices.DeleteFunc(cluster.Pods, func(p model.Pod) bool {
		gone := p.Node != "" && !l.Has(p.Node) && p.Annotations[replicas.OwnerAnnotation] != ""
		if gone {
			lost = append(lost, store.PodKey(p.Namespace, p.Name))
		}
		return gone
	})
	change, err := replicas.Plan(sets, pods, replicas.NewUID)
	errs := []error{err}
	for _, key := range append(lost, change.Delete...) {
		if err := c.store.Delete(ctx, key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	for _, o := range change.Create {
		if _, err := c.store.Create(ctx, o); err != nil && !errors.Is(err, store.ErrExists) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// bind binds the pods without a node.
func (c controller) bind(ctx context.Context, objects []store.Object, l layout.Layout) error {
	cluster, _ := store.Cluster(objects)
	cluster.Nodes = nil // the layout has the nodes
	cluster.Pods = slices.DeleteFunc(cluster.Pods, func(p model.Pod) bool { return p.Node != "" && !l.Has(p.Node) })
	unbound := map[podKey]bool{}
	for _, p := range cluster.Pods {
		unbound[podKey{p.Namespace, p.Name}] = p.Node == ""
	}
	pods, err := schedule(cluster, l)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		if !unbound[podKey{p.Namespace, p.Name}] {
			continue
		}
		_, err := c.store.Modify(ctx, store.PodKey(p.Namespace, p.Name), func(fields map[string]any) error {
			if spec, _ := fields["spec"].(map[string]any); spec != nil && spec["nodeName"] != nil && spec["nodeName"] != "" {
				return nil // bound meanwhile
			}
			return bindPod(p)(fields)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
