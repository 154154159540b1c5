// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
)

// ZoneSource is an address whose packets firewalld treats by the rules of a zone, until it is reloaded.
type ZoneSource struct {
	Zone   string       `json:"zone"`
	Source netip.Prefix `json:"source"`
}

// String prints it with firewall-cmd's words.
func (z ZoneSource) String() string {
	return fmt.Sprintf("firewalld zone %s source %s", z.Zone, z.Source)
}
