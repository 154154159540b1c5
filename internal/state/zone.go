// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"net/netip"
)

// ZoneSource is a source address in a zone of firewalld, until firewalld is reloaded.
type ZoneSource struct {
	Zone   string       `json:"zone"`
	Source netip.Prefix `json:"source"`
}

// String prints the source as firewall-cmd does.
func (z ZoneSource) String() string {
	return fmt.Sprintf("firewalld zone %s source %s", z.Zone, z.Source)
}
