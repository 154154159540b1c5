// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Heartbeat identifies a renewal of the leader's Lease. The zero Heartbeat: there never was a leader.
type Heartbeat struct{ Holder, version string }

// ReadHeartbeat reads the last heartbeat. If it is the same for longer than the renewal interval, there is no leader.
func ReadHeartbeat(ctx context.Context, objects store.Objects) (Heartbeat, error) {
	o, err := objects.Get(ctx, leases(), leases().Key(leaseNamespace, leaseName))
	if errors.Is(err, store.ErrNotFound) {
		return Heartbeat{}, nil
	}
	if err != nil {
		return Heartbeat{}, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	var is struct{ Spec leaseSpec }
	if err := json.Unmarshal(o.Raw, &is); err != nil {
		return Heartbeat{}, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	return Heartbeat{is.Spec.Holder, o.Version}, nil
}
