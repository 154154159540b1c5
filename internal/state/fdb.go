// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
)

// FDB is a permanent entry in the forwarding table of a VXLAN device: the VTEP (Dst) behind which a MAC address is.
type FDB struct {
	Link string     `json:"link"`
	MAC  MAC        `json:"mac"`
	Dst  netip.Addr `json:"dst"`
}

// String prints the entry as bridge-fdb does.
func (e FDB) String() string { return fmt.Sprintf("fdb %s dev %s dst %s", e.MAC, e.Link, e.Dst) }
