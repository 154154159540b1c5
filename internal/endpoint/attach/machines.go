// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"log/slog"

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
	// Leave takes what of a machine is about an attachment out of the container, before the attachment goes. The namespace
	// is nil when it has gone. The container's turn is the caller's.
	Leave(ctx context.Context, key model.AttachmentKey, ns *netns.NS) error
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

// leave takes a machine off an attachment that is about to be undone. What cannot be given back in the container is no
// reason to keep it from ending.
func (m *machinesIn) leave(ctx context.Context, rec Record, spaces kernel.Spaces) {
	if !m.has(rec.Request.ContainerID) || rec.Boot != m.boot {
		return
	}
	if err := m.known.Leave(ctx, rec.Key(), spaces.PodNS); err != nil {
		m.log.Warn("machine has not left", "attachment", rec.Key().String(), "err", err)
	}
}
