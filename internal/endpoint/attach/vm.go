// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// VM identifies the virtual machine of a record. A VM has a record of its own, apart from those of its pod's
// attachments: its interfaces share some of its changes to the pod, and the pod may be attached by another CNI plugin.
type VM struct {
	// Key identifies the VM, Pod its pod (a unique name).
	Key string `json:"key"`
	Pod string `json:"pod"`
	// Container is the pod's sandbox, if an agent attached it.
	Container string `json:"container,omitempty"`
	// Namespace identifies the pod's network namespace within a boot.
	Namespace string `json:"namespace,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner,omitempty"`
	// Path is the path of the instance's specification in the VM's manifest.
	Path string `json:"path,omitempty"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (v VM) MarshalJSON() ([]byte, error) {
	type plain VM
	return json.Marshal(plain(v))
}

// VMKey returns the key of the record of a VM in a pod.
func VMKey(vm, pod string) model.AttachmentKey {
	return model.AttachmentKey{Network: vm, ContainerID: pod, IfName: "vm"}
}

// VMInterface is an interface of a virtual machine in its pod.
type VMInterface struct {
	model.VMInterface
	// PodLink is the pod's link of that network.
	PodLink string         `json:"podLink"`
	Device  model.VMDevice `json:"device"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (i VMInterface) MarshalJSON() ([]byte, error) {
	type plain VMInterface
	return json.Marshal(plain(i))
}

// GrantedDevice is a device of the node that the hypervisor's user was granted in the root directory of its container.
type GrantedDevice struct {
	Root string `json:"root"`
	// Name is the device's name in /dev; "" is vhost-net.
	Name string `json:"name,omitempty"`
	// Dev and Ino identify the directory: another container may have the path of the root by now.
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	// Made: the device node was created; else it belonged to UID and GID, with Mode.
	Made bool   `json:"made,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
}

// MarshalJSON encodes it like any structure; see state.List.
func (d GrantedDevice) MarshalJSON() ([]byte, error) {
	type plain GrantedDevice
	return json.Marshal(plain(d))
}

// ActState is the progress of an act that begins and ends independently of its record.
type ActState string

// The states of an act.
const (
	ActPending  ActState = "pending"  // planned, with the pre-image of what will change; nothing is done
	ActStarted  ActState = "started"  // may be partly applied
	ActFinished ActState = "finished" // completely applied
	ActUndoing  ActState = "leaving"  // may be partly undone
)

// VMRegistry knows the virtual machines in pods. A VM may have changed what an attachment has made.
type VMRegistry interface {
	// Has reports whether there is a VM in a container.
	Has(container string) bool
	// Compose returns the expected state of an attachment: what it made, with the changes of the container's VM.
	Compose(key model.AttachmentKey, f state.Fragment) state.Fragment
	// Records returns the records of all VMs, also of earlier boots; the error joins those of unreadable ones.
	Records() ([]Record, error)
	// Open opens the network namespace of a VM's pod, nil if it is gone.
	Open(rec Record) *netns.NS
	// Undo undoes the chosen acts of a VM's interfaces in reverse. With the last interface it undoes what they share and
	// deletes the record. ns is nil if the namespace is gone. The caller holds the container's lock.
	Undo(ctx context.Context, rec Record, ns *netns.NS, chosen func(Act) bool) error
	// Forget deletes the record of a VM of an earlier boot, of which nothing is left to undo.
	Forget(ctx context.Context, rec Record) error
}

// podVMs wraps a VMRegistry, which may be nil.
type podVMs struct {
	registry VMRegistry // nil: there are no VMs
	boot     string
	log      *slog.Logger
}

// compose returns the expected state of an attachment.
func (m *podVMs) compose(key model.AttachmentKey, f state.Fragment) state.Fragment {
	if m.registry == nil || !m.registry.Has(key.ContainerID) {
		return f
	}
	return m.registry.Compose(key, f)
}

// has reports whether a container has a VM.
func (m *podVMs) has(container string) bool {
	return m.registry != nil && m.registry.Has(container)
}

// leave undoes what VMs have changed of an attachment that is about to be undone. An error does not stop the undo of
// the attachment: the VM's record stays and is undone later.
func (m *podVMs) leave(ctx context.Context, rec Record, spaces kernel.Spaces) {
	if !m.has(rec.Request.ContainerID) || rec.Boot != m.boot {
		return
	}
	all, err := m.registry.Records()
	errs := []error{err}
	for _, vm := range all {
		if vm.Boot == m.boot && vm.VM.Container == rec.Request.ContainerID {
			errs = append(errs, m.registry.Undo(ctx, vm, spaces.PodNS, onInterface(rec.Request.IfName)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("VM's changes to an attachment cannot be undone", "attachment", rec.Key().String(), "err", err)
	}
}

// onInterface returns a filter for the acts of VMs on an interface of the pod. Devices of the node, which have no
// interface, belong to the pod's first one, which is detached last.
func onInterface(ifName string) func(Act) bool {
	const first = "eth0"
	return func(act Act) bool {
		on := act.Interface.PodLink
		return on == ifName || on == "" && ifName == first
	}
}

// recover keeps the finished acts of the VMs of an earlier process, and undoes the rest; everything if the pod is gone.
func (m *podVMs) recover(ctx context.Context, report *Report) {
	if m.registry == nil {
		return
	}
	all, err := m.registry.Records()
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	for _, rec := range all {
		if err := m.recoverOne(ctx, rec); err != nil {
			report.Problems = append(report.Problems,
				fmt.Errorf("VM %s in pod %s: %w", rec.VM.Key, rec.VM.Pod, err))
		}
	}
}

func (m *podVMs) recoverOne(ctx context.Context, rec Record) error {
	if rec.Boot != m.boot {
		return m.registry.Forget(ctx, rec)
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	ns := m.registry.Open(rec)
	if ns == nil {
		return m.registry.Undo(ctx, rec, nil, func(Act) bool { return true })
	}
	defer func() { _ = ns.Close() }()
	return m.registry.Undo(ctx, rec, ns, func(act Act) bool { return act.State != ActFinished })
}
