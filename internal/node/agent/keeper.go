// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"path/filepath"

	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
)

// keeper goes on with the DHCP leases that an agent before kept.
func (a *agent) keeper(boot string) (*lease.Keeper, error) {
	return lease.Open(lease.Config{
		Dir: filepath.Join(a.cfg.StateDir, "dhcp"), Boot: boot, Log: a.cfg.Log,
		World: exchange.World{
			Now: a.cfg.Now, Random: rand.Reader,
			Timeout: exchange.Timeout, ResendMax: exchange.ResendMax, ResendTimeout: exchange.ResendTimeout,
		},
	})
}
