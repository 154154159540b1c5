// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// admit has policy enforced for VMs on the pod's interfaces, before a guest can send: hooks in the pod's IP stack do
// not see its packets.
func (m *Registry) admit(ctx context.Context, records []attach.Record) error {
	if m.cfg.Admit == nil {
		return nil
	}
	var added []model.WorkloadEndpoint
	for _, r := range records {
		if e, ok := r.Endpoint(); ok && (!e.VM || e.Tap || e.Device != "") {
			// for a tap or a device the policy enforcer must be asked again
			e.VM = true
			added = append(added, e)
		}
	}
	if len(added) == 0 {
		return nil
	}
	if err := m.cfg.Admit(ctx, added...); err != nil {
		return fmt.Errorf("policy of pod %s: %w", added[0].Pod, err)
	}
	return nil
}
