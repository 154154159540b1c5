// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
)

// RestartPod replaces a pod by one of the same manifest on the same node. It is one write: the pod gets another UID and no
// status, and the node ends the old pod and starts the new one.
func (c Changer) RestartPod(ctx context.Context, namespace, name string) error {
	unlock, _, err := c.Dir.LockUp(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := dir.Open(c.Dir.Store())
	if err != nil {
		return err
	}
	key := store.PodKey(namespace, name)
	have, err := s.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return notFound(key)
	}
	if err != nil {
		return err
	}
	p, err := have.Pod()
	if err != nil {
		return err
	}
	if vm := p.Annotations[launch.DomainAnnotation]; vm != "" {
		return model.Errorf(model.CodeInvalidConf, "delete and apply the VM's manifest", "%s is the pod of VM %s", key, vm)
	}
	o, err := s.Modify(ctx, key, func(fields map[string]any) error {
		if meta, ok := fields["metadata"].(map[string]any); ok {
			meta["uid"] = replicas.NewUID()
		}
		delete(fields, "status")
		return nil
	})
	if err != nil {
		return err
	}
	unlock()
	if err := c.await(ctx, []store.Object{o}); err != nil {
		return err
	}
	c.Logf("%s restarted on %s", key, p.Node)
	return nil
}
