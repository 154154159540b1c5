// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weft-net/weft/internal/cluster/store"
)

// Sign is a sign of life of whoever leads: another one each time the Lease is renewed. The zero Sign: nobody ever led.
type Sign struct{ Holder, version string }

// Look asks for the last sign of life. Whoever sees the same one twice, with more time between than the Lease is
// renewed in, knows that nobody leads.
func Look(ctx context.Context, objects store.Objects) (Sign, error) {
	o, err := objects.Get(ctx, leases(), leases().Key(leaseNamespace, leaseName))
	if errors.Is(err, store.ErrNotFound) {
		return Sign{}, nil
	}
	if err != nil {
		return Sign{}, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	var is struct{ Spec leaseSpec }
	if err := json.Unmarshal(o.Raw, &is); err != nil {
		return Sign{}, fmt.Errorf("lease %s: %w", leaseName, err)
	}
	return Sign{is.Spec.Holder, o.Version}, nil
}
