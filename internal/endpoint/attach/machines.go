// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

// Machines know the virtual machines in containers. A machine may have made something else of what an attachment left.
type Machines interface {
	// Has tells whether there is one in a container.
	Has(container string) bool
	// Compose is what there should be about an attachment: what it made, with the container's machine upon it.
	Compose(key model.AttachmentKey, f state.Fragment) state.Fragment
	// Leave takes what of a machine is about an attachment out of the container, before the attachment goes. The namespace is nil
	// when it has gone. The container's turn is the caller's.
	Leave(ctx context.Context, key model.AttachmentKey, ns *netns.NS) error
}

// Hold waits for a container's turn, as ADD and DEL do, on behalf of others.
func (a *Attacher) Hold(ctx context.Context, container string) (release func(), err error) {
	return a.cfg.Locks.Container(ctx, container)
}

// composed is what there should be about a record's attachment.
func (a *Attacher) composed(key model.AttachmentKey, f state.Fragment) state.Fragment {
	if a.cfg.Machines == nil || !a.cfg.Machines.Has(key.ContainerID) {
		return f
	}
	return a.cfg.Machines.Compose(key, f)
}

// hasMachine tells whether a machine is in a container.
func (a *Attacher) hasMachine(container string) bool {
	return a.cfg.Machines != nil && a.cfg.Machines.Has(container)
}

// machineLeaves takes a machine off an attachment that is about to be undone. What cannot be given back in the container is no
// reason to keep it from ending.
func (a *Attacher) machineLeaves(ctx context.Context, rec Record, spaces kernel.Spaces) {
	if !a.hasMachine(rec.Request.ContainerID) || rec.Boot != a.cfg.Boot {
		return
	}
	if err := a.cfg.Machines.Leave(ctx, rec.Key(), spaces.PodNS); err != nil {
		a.cfg.Log.Warn("machine has not left", "attachment", rec.Key().String(), "err", err)
	}
}
