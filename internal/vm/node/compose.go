// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/weft-net/weft/internal/model"
	plan "github.com/weft-net/weft/internal/plan/vm"
	"github.com/weft-net/weft/internal/state"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Has reports whether there is a VM in a container.
func (m *Registry) Has(container string) bool { return len(m.inSandbox(container)) > 0 }

// Compose returns the expected state of an attachment: what it made, with the changes of the pod's VM.
func (m *Registry) Compose(key model.AttachmentKey, f state.Fragment) state.Fragment {
	for _, r := range m.inSandbox(key.ContainerID) {
		var networks []plan.Network
		for _, n := range r.Networks {
			if n.State == phase1.Finished {
				networks = append(networks, n.Network)
			}
		}
		f = plan.Compose(f, key.IfName, r.Shared, networks)
	}
	return f
}
