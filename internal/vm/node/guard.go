// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
)

// guard has policy know that a guest may have the wire of a pod of which nobody has said so, before it has: no hook of
// IP in the pod sees it there.
func (m *Machines) guard(ctx context.Context, records []attach.Record) error {
	if m.cfg.Admit == nil {
		return nil
	}
	var news []model.WorkloadEndpoint
	for _, r := range records {
		if e, ok := r.Endpoint(); ok && (!e.VM || e.Tap || e.Device != "") {
			// of these it may have changed whether policies can be enforced
			e.VM = true
			news = append(news, e)
		}
	}
	if len(news) == 0 {
		return nil
	}
	if err := m.cfg.Admit(ctx, news...); err != nil {
		return fmt.Errorf("policy of pod %s: %w", news[0].Pod, err)
	}
	return nil
}
