// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"maps"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// migrationState returns the migrationState that KubeVirt sets in a VM's status: the nodes, the target pod, and the
// result.
func (j *migrator) migrationState(more map[string]any) map[string]any {
	state := map[string]any{"sourceNode": j.source.Node, "targetNode": j.Node, "targetPod": j.targetPod}
	maps.Copy(state, more)
	return state
}

// authorizeTarget permits the target pod to take over the VM's addresses: in the VM's status, as KubeVirt does, or by an
// AddressMove if there is no VirtualMachineInstance.
func (j *migrator) authorizeTarget(ctx context.Context, pod string) error {
	j.targetPod = pod
	err := j.modifyStatus(ctx, func(status map[string]any) { status["migrationState"] = j.migrationState(nil) })
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	o, err := store.AddressMoveObject(store.Object{}, model.AddressMove{
		Namespace: j.source.Namespace, Name: pod, VM: j.source.Name, Addrs: vmAddrs(j.source), Target: j.Node,
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

// setCompleted sets the VM's status as KubeVirt does when a migration has succeeded.
func (j *migrator) setCompleted(ctx context.Context) error {
	return ignoreNotFound(j.modifyStatus(ctx, func(status map[string]any) {
		status["nodeName"] = j.Node
		status["migrationState"] = j.migrationState(map[string]any{"completed": true})
	}))
}

// setFailed sets the VM's status as KubeVirt does when a migration has failed.
func (j *migrator) setFailed(ctx context.Context) error {
	if j.targetPod == "" {
		return nil
	}
	failed := map[string]any{"completed": true, "failed": true}
	err := ignoreNotFound(j.modifyStatus(ctx, func(status map[string]any) {
		status["migrationState"] = j.migrationState(failed)
	}))
	return errors.Join(err, j.deleteMove(ctx))
}

// deleteMove deletes the AddressMove, if there is one, even if ctx has ended.
func (j *migrator) deleteMove(ctx context.Context) error {
	key := store.AddressMoves().Key(j.source.Namespace, j.targetPod)
	return ignoreNotFound(j.store.Delete(context.WithoutCancel(ctx), key, ""))
}

func ignoreNotFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// modifyStatus edits the VM's status. The error wraps store.ErrNotFound if there is no VirtualMachineInstance.
func (j *migrator) modifyStatus(ctx context.Context, edit func(map[string]any)) error {
	return modifyVMStatus(ctx, j.store, j.source.Namespace, j.source.Name, edit)
}

func modifyVMStatus(ctx context.Context, s *dir.Store, namespace, name string, edit func(map[string]any)) error {
	_, err := s.Modify(ctx, store.VirtualMachineInstances().Key(namespace, name),
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

// setVMRunning sets the status of a VM whose guest runs as KubeVirt does, if there is a VirtualMachineInstance.
func setVMRunning(ctx context.Context, s *dir.Store, m labVM) error {
	return ignoreNotFound(modifyVMStatus(ctx, s, m.VM.Namespace, m.VM.Name, func(status map[string]any) {
		status["phase"], status["nodeName"] = "Running", m.node
	}))
}
