// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"maps"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// migrationState is what KubeVirt writes into a machine's status while it migrates: the nodes, the pod that it goes to,
// and what came of it.
func (j *journey) migrationState(more map[string]any) map[string]any {
	state := map[string]any{"sourceNode": j.here.Node, "targetNode": j.Node, "targetPod": j.target}
	maps.Copy(state, more)
	return state
}

// allow says which pod the machine goes to, before that pod can take its addresses over: in the machine's status as
// KubeVirt does, and by an AddressMove where the machine is no VirtualMachineInstance.
func (j *journey) allow(ctx context.Context, pod string) error {
	j.target = pod
	err := j.status(ctx, func(status map[string]any) { status["migrationState"] = j.migrationState(nil) })
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	o, err := store.AddressMoveObject(store.Object{}, model.AddressMove{
		Namespace: j.here.Namespace, Name: pod, Machine: j.here.Name, Addrs: guestAddrs(j.here), Target: j.Node,
		TargetPod: pod,
	})
	if err == nil {
		_, err = j.store.Create(ctx, o)
	}
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// tell writes what KubeVirt writes when a machine has gone to another node.
func (j *journey) tell(ctx context.Context) error {
	return j.over(j.status(ctx, func(status map[string]any) {
		status["nodeName"] = j.Node
		status["migrationState"] = j.migrationState(map[string]any{"completed": true})
	}))
}

// fail writes what KubeVirt writes when a machine has not gone to another node.
func (j *journey) fail(ctx context.Context) error {
	if j.target == "" {
		return nil
	}
	failed := map[string]any{"completed": true, "failed": true}
	err := j.over(j.status(ctx, func(status map[string]any) { status["migrationState"] = j.migrationState(failed) }))
	return errors.Join(err, j.forbid(ctx))
}

// forbid takes away the AddressMove that says which pod the machine goes to, if there is one, also when ctx has ended.
func (j *journey) forbid(ctx context.Context) error {
	return j.over(j.store.Delete(context.WithoutCancel(ctx), store.AddressMoves().Key(j.here.Namespace, j.target), ""))
}

// over is err, or nil where there is no such object.
func (j *journey) over(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// status edits the machine's status. The error wraps store.ErrNotFound when it is no VirtualMachineInstance.
func (j *journey) status(ctx context.Context, edit func(map[string]any)) error {
	_, err := j.store.Modify(ctx, store.VirtualMachineInstances().Key(j.here.Namespace, j.here.Name),
		func(fields map[string]any) error {
			status, _ := fields["status"].(map[string]any)
			if status == nil {
				status = map[string]any{}
			}
			edit(status)
			fields["status"] = status
			return nil
		})
	return err
}
