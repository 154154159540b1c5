// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
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
	err := errors.Join(c.collect(ctx, objects, l), c.replicate(ctx, objects))
	now, listErr := c.store.List("")
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return errors.Join(err, c.bind(ctx, now, l))
}

// collect deletes the pods on nodes that were removed, as the pod garbage collector of a cluster. The objects must be older
// than the layout.
func (c controller) collect(ctx context.Context, objects []store.Object, l layout.Layout) error {
	cluster, _ := store.Cluster(objects)
	var errs []error
	for _, p := range cluster.Pods {
		if p.Node == "" || l.Has(p.Node) {
			continue
		}
		if err := c.store.Delete(ctx, store.PodKey(p.Namespace, p.Name), ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// replicate creates and deletes the pods of Deployments and ReplicaSets.
func (c controller) replicate(ctx context.Context, objects []store.Object) error {
	cluster, _ := store.Cluster(objects)
	var sets []store.Object
	for _, o := range objects {
		if replicas.Is(o) {
			sets = append(sets, o)
		}
	}
	change, err := replicas.Plan(sets, cluster.Pods, replicas.NewUID)
	errs := []error{err}
	for _, key := range change.Delete {
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
	pods, err := schedule(cluster, l, Unschedulable(objects))
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods {
		if p.Node == "" || !unbound[podKey{p.Namespace, p.Name}] {
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

// Unschedulable returns the nodes to which no pods are bound, by spec.unschedulable of the Node objects.
func Unschedulable(objects []store.Object) map[string]bool {
	out := map[string]bool{}
	for _, o := range objects {
		var in struct {
			Spec struct {
				Unschedulable bool `json:"unschedulable"`
			} `json:"spec"`
		}
		if o.Is("Node") && json.Unmarshal(o.Raw, &in) == nil && in.Spec.Unschedulable {
			out[o.Key.Name] = true
		}
	}
	return out
}
