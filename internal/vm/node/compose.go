// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/weft-net/weft/internal/model"
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
