// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Has tells whether a pod has a machine.
func (m *Machines) Has(container string) bool { return len(m.of(container)) > 0 }

// Compose is what the namespaces should be about an attachment: what the attachment made, with the pod's machine upon
// it.
func (m *Machines) Compose(key model.AttachmentKey, f state.Fragment) state.Fragment {
	for _, r := range m.of(key.ContainerID) {
		var networks []plan.Network
		for _, n := range r.Networks {
			if n.State == phase1.Finished {
				networks = append(networks, n.Network)
			}
		}
		f = plan.Compose(f, key.IfName, r.Pod, networks)
	}
	return f
}

// Leave takes the networks of a pod's machine that are about an interface out of the pod, before the interface goes.
// The caller has the sandbox's turn; the pod's namespace may be gone.
func (m *Machines) Leave(ctx context.Context, key model.AttachmentKey, ns *netns.NS) error {
	var errs []error
	for _, r := range m.of(key.ContainerID) {
		in := ns
		if in != nil {
			if name, err := phase1.Identity(in); err != nil || name != r.Namespace {
				in = nil
			}
		}
		left, err := m.local.Leave(ctx, in, r, key.IfName)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.drop(r)
		m.note(left)
	}
	return errors.Join(errs...)
}
