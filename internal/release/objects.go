// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/weft-net/weft/deploy"
	"github.com/weft-net/weft/deploy/chart"
	"github.com/weft-net/weft/internal/model"
)

// agentManager is the name of what agents and the controller write, in the objects' managedFields.
const agentManager = "weft"

// removeObjects deletes what weft has written in the cluster and is no part of the release: annotations and a condition of
// nodes, the controller's Lease, conditions of policies, where agents listen, and unless keepData the kinds with their
// objects. It returns what stays, and why.
func (c *Cluster) removeObjects(ctx context.Context, keepData bool) ([]string, error) {
	if err := c.removeRights(ctx); err != nil {
		return nil, err
	}
	if err := c.restoreNodes(ctx); err != nil {
		return nil, err
	}
	if err := c.restorePolicies(ctx); err != nil {
		return nil, err
	}
	leases := c.client.CoordinationV1().Leases(leaseNamespace)
	if err := leases.Delete(ctx, controller, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("lease %s: %w", controller, err)
	}
	err := c.flowListeners().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("listeners of flows: %w", err)
	}
	var kept []string
	own, err := decode(deploy.Kinds())
	if err != nil {
		return nil, err
	}
	for _, k := range own {
		if keepData {
			kept = append(kept, "kind "+k.GetName()+": --keep-data")
			continue
		}
		if err := c.deleteKind(ctx, k.GetName()); err != nil {
			return kept, err
		}
	}
	others, err := decode(deploy.NetworkAttachmentKind())
	if err != nil {
		return kept, err
	}
	for _, k := range others {
		why, err := c.deleteUnusedKind(ctx, k.GetName())
		if err != nil {
			return kept, err
		}
		if why != "" {
			kept = append(kept, "kind "+k.GetName()+": "+why)
		}
	}
	return kept, nil
}

// flowListeners are where agents listen, which have ended: no data to keep.
func (c *Cluster) flowListeners() dynamic.NamespaceableResourceInterface {
	return c.dynamic.Resource(schema.GroupVersionResource{Group: "weft.dev", Version: "v1alpha1", Resource: "flowlisteners"})
}

// leaseNamespace is where the controller's Lease is, whatever the release's namespace.
const leaseNamespace = "kube-system"

// removeRights deletes the binding of what agents may do: one on a node whose kubelet does not end it would write again what
// is deleted now.
func (c *Cluster) removeRights(ctx context.Context) error {
	err := c.client.RbacV1().ClusterRoleBindings().Delete(ctx, chart.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cluster role binding %s: %w", chart.Name, err)
	}
	return nil
}

// restoreNodes removes the annotations that agents own, and the condition that they set.
func (c *Cluster) restoreNodes(ctx context.Context) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	for _, n := range nodes.Items {
		patch := nodePatch(n)
		if patch == nil {
			continue
		}
		b, err := json.Marshal(patch)
		if err == nil {
			_, err = c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, b,
				metav1.PatchOptions{FieldManager: manager}, "status")
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// nodePatch returns the patch that removes what agents have written to a node; nil: nothing.
func nodePatch(n core.Node) map[string]any {
	patch := map[string]any{}
	gone := map[string]any{}
	for _, key := range ownedAnnotations(n.ManagedFields) {
		gone[key] = nil
	}
	if len(gone) > 0 {
		patch["metadata"] = map[string]any{"annotations": gone}
	}
	if slices.ContainsFunc(n.Status.Conditions, func(x core.NodeCondition) bool {
		return x.Type == core.NodeNetworkUnavailable && slices.Contains(model.NetworkUnavailableReasons(), x.Reason)
	}) && ownsCondition(n.ManagedFields, string(core.NodeNetworkUnavailable)) {
		patch["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": string(core.NodeNetworkUnavailable), "$patch": "delete",
		}}}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}

// ownedFields decodes the fields that agents own of an object.
func ownedFields(managed []metav1.ManagedFieldsEntry) []map[string]any {
	var out []map[string]any
	for _, m := range managed {
		var f map[string]any
		if m.Manager == agentManager && m.FieldsV1 != nil && json.Unmarshal(m.FieldsV1.Raw, &f) == nil {
			out = append(out, f)
		}
	}
	return out
}

// ownedAnnotations returns the annotations that agents wrote last.
func ownedAnnotations(managed []metav1.ManagedFieldsEntry) []string {
	var out []string
	for _, f := range ownedFields(managed) {
		meta, _ := f["f:metadata"].(map[string]any)
		annotations, _ := meta["f:annotations"].(map[string]any)
		for key := range annotations {
			if name, is := strings.CutPrefix(key, "f:"); is {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ownsCondition reports whether agents wrote a condition last.
func ownsCondition(managed []metav1.ManagedFieldsEntry, kind string) bool {
	for _, f := range ownedFields(managed) {
		status, _ := f["f:status"].(map[string]any)
		conditions, _ := status["f:conditions"].(map[string]any)
		if conditions[`k:{"type":"`+kind+`"}`] != nil {
			return true
		}
	}
	return false
}

// restorePolicies removes the condition that agents write to the status of policies.
func (c *Cluster) restorePolicies(ctx context.Context) error {
	api := c.dynamic.Resource(schema.GroupVersionResource{
		Group: "policy.networking.k8s.io", Version: "v1alpha2", Resource: "clusternetworkpolicies",
	})
	all, err := api.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the cluster has no such kind
	}
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	for _, p := range all.Items {
		conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
		left := slices.DeleteFunc(slices.Clone(conditions), func(x any) bool {
			one, _ := x.(map[string]any)
			return one["type"] == model.ConditionUnderstood
		})
		if len(left) == len(conditions) {
			continue
		}
		if err := unstructured.SetNestedSlice(p.Object, left, "status", "conditions"); err != nil {
			return fmt.Errorf("policy %s: %w", p.GetName(), err)
		}
		if _, err := api.UpdateStatus(ctx, &p, metav1.UpdateOptions{FieldManager: manager}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("policy %s: %w", p.GetName(), err)
		}
	}
	return nil
}

// kindResource returns the resource of a definition of a kind.
func kindResource(k *unstructured.Unstructured) schema.GroupVersionResource {
	group, _, _ := unstructured.NestedString(k.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(k.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(k.Object, "spec", "versions")
	version := ""
	for _, v := range versions {
		one, _ := v.(map[string]any)
		if served, _ := one["served"].(bool); served {
			version, _ = one["name"].(string)
		}
	}
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

// deleteKind deletes a kind with its objects. Their finalizers are of the controller, which has ended.
func (c *Cluster) deleteKind(ctx context.Context, name string) error {
	kinds := c.dynamic.Resource(definitions())
	k, err := kinds.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kind %s: %w", name, err)
	}
	if err := kinds.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("kind %s: %w", name, err)
	}
	if err := c.dropFinalizers(ctx, c.dynamic.Resource(kindResource(k))); err != nil {
		return fmt.Errorf("kind %s: %w", name, err)
	}
	return nil
}

// dropFinalizers removes the finalizers of all objects of a kind.
func (c *Cluster) dropFinalizers(ctx context.Context, of dynamic.NamespaceableResourceInterface) error {
	all, err := of.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil // they are gone already
	}
	if err != nil {
		return err
	}
	for _, o := range all.Items {
		if len(o.GetFinalizers()) == 0 {
			continue
		}
		var in dynamic.ResourceInterface = of
		if o.GetNamespace() != "" {
			in = of.Namespace(o.GetNamespace())
		}
		_, err := in.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{FieldManager: manager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
	}
	return nil
}

// deleteUnusedKind deletes a kind that this program has created, if it has no objects. Otherwise it returns why it stays;
// empty: it is gone.
func (c *Cluster) deleteUnusedKind(ctx context.Context, name string) (string, error) {
	kinds := c.dynamic.Resource(definitions())
	k, err := kinds.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("kind %s: %w", name, err)
	}
	if !slices.ContainsFunc(k.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool { return m.Manager == manager }) {
		return "weft has not created it", nil
	}
	all, err := c.dynamic.Resource(kindResource(k)).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("kind %s: %w", name, err)
	}
	if len(all.Items) > 0 {
		return "there are objects of it", nil
	}
	if err := kinds.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("kind %s: %w", name, err)
	}
	return "", nil
}

// Objects counts the objects of weft's kinds, by kind; those without objects are left out.
func (c *Cluster) Objects(ctx context.Context) (map[string]int, error) {
	own, err := decode(deploy.Kinds())
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, k := range own {
		all, err := c.dynamic.Resource(kindResource(k)).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", k.GetName(), err)
		}
		if len(all.Items) > 0 {
			out[kindResource(k).Resource] = len(all.Items)
		}
	}
	return out, nil
}

// Preview is what a removal would remove from the cluster.
type Preview struct {
	Objects []string
	// Pods counts the pods of the network by namespace: they would keep it.
	Pods map[string]int
	// Nodes are all nodes of the cluster.
	Nodes []string
}

// Preview returns what Uninstall would remove, nodes excepted.
func (c *Cluster) Preview(ctx context.Context, keepData bool) (Preview, error) {
	var out Preview
	last, err := c.last()
	if err == nil && last == nil {
		err = c.notInstalled()
	}
	if err != nil {
		return out, err
	}
	made, err := decode(last.Manifest)
	if err != nil {
		return out, err
	}
	for _, o := range made {
		name := o.GetName()
		if o.GetNamespace() != "" {
			name = o.GetNamespace() + "/" + name
		}
		out.Objects = append(out.Objects, o.GetKind()+" "+name)
	}
	out.Objects = append(out.Objects, "Lease "+leaseNamespace+"/"+controller)
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("nodes: %w", err)
	}
	for _, n := range nodes.Items {
		out.Nodes = append(out.Nodes, n.Name)
		for _, key := range ownedAnnotations(n.ManagedFields) {
			out.Objects = append(out.Objects, "annotation "+key+" of Node "+n.Name)
		}
		if patch := nodePatch(n); patch["status"] != nil {
			out.Objects = append(out.Objects, "condition "+string(core.NodeNetworkUnavailable)+" of Node "+n.Name)
		}
	}
	if keepData {
		listeners, err := c.flowListeners().List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return out, fmt.Errorf("listeners of flows: %w", err)
		}
		if err == nil {
			for _, l := range listeners.Items {
				out.Objects = append(out.Objects, l.GetKind()+" "+l.GetName())
			}
		}
	} else {
		counts, err := c.Objects(ctx)
		if err != nil {
			return out, err
		}
		own, err := decode(deploy.Kinds())
		if err != nil {
			return out, err
		}
		for _, k := range own {
			out.Objects = append(out.Objects, fmt.Sprintf("kind %s, with %d objects", k.GetName(), counts[kindResource(k).Resource]))
		}
	}
	out.Pods, err = c.PodsOfNetwork(ctx)
	return out, err
}
