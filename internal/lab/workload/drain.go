// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
)

// Drain marks a node as unschedulable and deletes its pods, and waits until they have ended and those of Deployments and
// ReplicaSets run on other nodes. Pods that nothing creates again are deleted only with force; VMs must be migrated before.
// If it refuses, nothing is changed.
func (c Changer) Drain(ctx context.Context, node string, force bool) error {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := c.openFor(m.Layout, node)
	if err != nil {
		return err
	}
	pods, err := podsOn(s, node)
	if err != nil {
		return err
	}
	if err := drainable(pods, node, force); err != nil {
		return err
	}
	if err := setUnschedulable(ctx, s, node, true); err != nil {
		return err
	}
	ending := map[string]bool{}
	if err := c.evict(ctx, s, node, ending); err != nil {
		return err
	}
	unlock()
	if err := c.awaitDrained(ctx, s, m.Layout, node, ending); err != nil {
		return err
	}
	c.Logf("%s drained", node)
	return nil
}

// Uncordon makes a node schedulable again.
func (c Changer) Uncordon(ctx context.Context, node string) error {
	unlock, m, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := c.openFor(m.Layout, node)
	if err != nil {
		return err
	}
	if err := setUnschedulable(ctx, s, node, false); err != nil {
		return err
	}
	c.Logf("%s uncordoned", node)
	return nil
}

// openFor opens the store, if the lab has the node.
func (c Changer) openFor(l layout.Layout, node string) (*dir.Store, error) {
	if !l.Has(node) {
		return nil, model.Errorf(model.CodeInvalidConf, "use one of the nodes that `weft lab status` lists", "node %q not found", node)
	}
	return dir.Open(c.Dir.Store())
}

// podsOn returns the pods that are bound to a node.
func podsOn(s *dir.Store, node string) ([]model.Pod, error) {
	objects, err := s.List("Pod")
	if err != nil {
		return nil, err
	}
	cluster, problems := store.Cluster(objects)
	return slices.DeleteFunc(cluster.Pods, func(p model.Pod) bool { return p.Node != node }), errors.Join(problems...)
}

// drainable returns why pods cannot be deleted.
func drainable(pods []model.Pod, node string, force bool) error {
	var vms, ownerless []string
	for _, p := range pods {
		switch {
		case p.Annotations[launch.DomainAnnotation] != "":
			vms = append(vms, p.Namespace+"/"+p.Annotations[launch.DomainAnnotation])
		case p.Annotations[replicas.OwnerAnnotation] == "":
			ownerless = append(ownerless, p.Namespace+"/"+p.Name)
		}
	}
	switch {
	case len(vms) > 0:
		return model.Errorf(model.CodeInvalidConf, "move them with `weft lab migrate`, or delete them with `weft lab delete`",
			"node %s has VMs: %s", node, strings.Join(vms, ", "))
	case len(ownerless) > 0 && !force:
		return model.Errorf(model.CodeInvalidConf, "use --force to delete them; nothing creates them again",
			"node %s has pods that are not of a Deployment or a ReplicaSet: %s", node, strings.Join(ownerless, ", "))
	}
	return nil
}

// setUnschedulable writes spec.unschedulable of a node.
func setUnschedulable(ctx context.Context, s *dir.Store, node string, unschedulable bool) error {
	_, err := s.Modify(ctx, store.NodeKey(node), func(fields map[string]any) error {
		spec, _ := fields["spec"].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
			fields["spec"] = spec
		}
		delete(spec, "unschedulable")
		if unschedulable {
			spec["unschedulable"] = true
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", node, err)
	}
	return nil
}

// evict deletes the pods on a node, and adds their UIDs.
func (c Changer) evict(ctx context.Context, s *dir.Store, node string, ending map[string]bool) error {
	pods, err := podsOn(s, node)
	if err != nil {
		return err
	}
	for _, p := range pods {
		key := store.PodKey(p.Namespace, p.Name)
		if err := s.Delete(ctx, key, ""); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s: %w", key, err)
		}
		ending[p.UID] = true
		c.Logf("%s evicted", key)
	}
	return nil
}

// awaitDrained waits until the pods have ended, and all replicas run if there is a node for them. Replicas that were bound to
// the node by a scheduler that did not know yet are deleted, too.
func (c Changer) awaitDrained(ctx context.Context, s *dir.Store, l layout.Layout, node string, ending map[string]bool) error {
	return c.Until(ctx, "not drained", func() ([]string, error) {
		if err := c.evict(ctx, s, node, ending); err != nil {
			return nil, err
		}
		missing, err := c.running(ctx, l, ending)
		if err != nil {
			return nil, err
		}
		objects, err := s.List("")
		if err != nil {
			return nil, err
		}
		unschedulable := lab.Unschedulable(objects)
		if !slices.ContainsFunc(l.Nodes, func(n layout.Node) bool { return !unschedulable[n.Name] }) {
			return missing, nil // the status reports pods without a node
		}
		cluster, _ := store.Cluster(objects)
		for _, o := range objects {
			if replicas.Is(o) {
				if m := pending(o, lab.Status{}, cluster.Pods); m != "" {
					missing = append(missing, m)
				}
			}
		}
		return missing, nil
	})
}
