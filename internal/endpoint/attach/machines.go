// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Machine says which virtual machine a record is about. It has a record of its own, beside those of its pod's
// attachments: some of what it changes of the pod its interfaces have in common, and the pod may be attached by others.
type Machine struct {
	// Key is the machine's, Pod the name of its pod among all that there ever are.
	Key string `json:"key"`
	Pod string `json:"pod"`
	// Container is the pod's sandbox, where an agent attached it.
	Container string `json:"container,omitempty"`
	// Namespace names the pod's namespace among all of a boot.
	Namespace string `json:"namespace,omitempty"`
	// Owner is the user and group that the hypervisor runs as.
	Owner uint32 `json:"owner,omitempty"`
	// Path is where the machine's manifest has the instance's specification.
	Path string `json:"path,omitempty"`
}

// MachineKey is the key of the record of a machine in a pod.
func MachineKey(machine, pod string) model.AttachmentKey {
	return model.AttachmentKey{Network: machine, ContainerID: pod, IfName: "vm"}
}

// MachineInterface is an interface of a virtual machine in its pod.
type MachineInterface struct {
	model.VMInterface
	// PodLink is the pod's link of that network.
	PodLink string         `json:"podLink"`
	Device  model.VMDevice `json:"device"`
}

// Given is a device of the node that a machine's user was given in the root directory of the hypervisor's container.
type Given struct {
	Root string `json:"root"`
	// Name is the device's in the directory of devices; "" is vhost-net.
	Name string `json:"name,omitempty"`
	// Dev and Ino are the directory's: another container may have the root's path by now.
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
	// Made tells that there was none; one that was there belonged to UID and GID, with that mode.
	Made bool   `json:"made,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
	Mode uint32 `json:"mode,omitempty"`
}

// ActState says how far an act is that begins and ends by itself.
type ActState string

// The states of an act.
const (
	ActPending  ActState = "pending"  // planned, with the pre-image of what will change; nothing is done
	ActStarted  ActState = "started"  // some of it may be there
	ActFinished ActState = "finished" // all of it is there
	ActLeaving  ActState = "leaving"  // some of it may be gone
)

// Machines know the virtual machines in containers. A machine may have made something else of what an attachment left.
type Machines interface {
	// Has tells whether there is one in a container.
	Has(container string) bool
	// Compose is what there should be about an attachment: what it made, with the container's machine upon it.
	Compose(key model.AttachmentKey, f state.Fragment) state.Fragment
	// Records are those of all machines, also of earlier boots; the error joins what is wrong with the others.
	Records() ([]Record, error)
	// Open opens the namespace of a machine's pod, nil where that has gone.
	Open(rec Record) *netns.NS
	// Undo undoes the chosen acts of a machine's interfaces, the last one first, and with the last interface what all of
	// them needed of the pod; the record goes with it. The namespace is nil when it has gone. The container's turn is the
	// caller's.
	Undo(ctx context.Context, rec Record, ns *netns.NS, chosen func(Act) bool) error
	// Forget forgets a machine of an earlier boot, of which nothing is left to undo.
	Forget(ctx context.Context, rec Record) error
}

// machinesIn asks about the virtual machines in containers, where somebody knows them.
type machinesIn struct {
	known Machines // nil: there are none
	boot  string
	log   *slog.Logger
}

// compose is what there should be about a record's attachment.
func (m *machinesIn) compose(key model.AttachmentKey, f state.Fragment) state.Fragment {
	if m.known == nil || !m.known.Has(key.ContainerID) {
		return f
	}
	return m.known.Compose(key, f)
}

// has reports whether a machine is in a container.
func (m *machinesIn) has(container string) bool {
	return m.known != nil && m.known.Has(container)
}

// leave undoes what machines have made of an attachment that is about to be undone. What cannot be given back in the
// container is no reason to keep it from ending: the machine's record stays, and is undone with what is left.
func (m *machinesIn) leave(ctx context.Context, rec Record, spaces kernel.Spaces) {
	if !m.has(rec.Request.ContainerID) || rec.Boot != m.boot {
		return
	}
	all, err := m.known.Records()
	errs := []error{err}
	for _, machine := range all {
		if machine.Boot == m.boot && machine.Machine.Container == rec.Request.ContainerID {
			errs = append(errs, m.known.Undo(ctx, machine, spaces.PodNS, upon(rec.Request.IfName)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("machine has not left", "attachment", rec.Key().String(), "err", err)
	}
}

// upon chooses the acts of machines that are about an interface of the pod. Devices of the node, which have none, go
// with the pod's first one, which goes last.
func upon(ifName string) func(Act) bool {
	const first = "eth0"
	return func(act Act) bool {
		on := act.Interface.PodLink
		return on == ifName || on == "" && ifName == first
	}
}

// recover keeps what is finished of the machines that a process before this one had in pods, and undoes the rest: all
// of it where the pod has gone.
func (m *machinesIn) recover(ctx context.Context, report *Report) {
	if m.known == nil {
		return
	}
	all, err := m.known.Records()
	if err != nil {
		report.Problems = append(report.Problems, err)
	}
	for _, rec := range all {
		if err := m.recoverOne(ctx, rec); err != nil {
			report.Problems = append(report.Problems,
				fmt.Errorf("machine %s in pod %s: %w", rec.Machine.Key, rec.Machine.Pod, err))
		}
	}
}

func (m *machinesIn) recoverOne(ctx context.Context, rec Record) error {
	if rec.Boot != m.boot {
		return m.known.Forget(ctx, rec)
	}
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	ns := m.known.Open(rec)
	if ns == nil {
		return m.known.Undo(ctx, rec, nil, func(Act) bool { return true })
	}
	defer func() { _ = ns.Close() }()
	return m.known.Undo(ctx, rec, ns, func(act Act) bool { return act.State != ActFinished })
}
