// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// Mode is one of the modes of a network.
type Mode string

// The modes.
const (
	ModeNone    Mode = "none"
	ModeCluster Mode = "cluster"
	ModeFlannel Mode = "flannel"
	ModeMultus  Mode = "multus"
)

// checkPermit refuses what is no annotation that needs a permission.
func (n Network) checkPermit() error {
	for i, word := range n.Permit {
		if !slices.Contains([]string{"ipAddrsNoIpam", "floatingIPs", "allowedSourcePrefixes"}, word) {
			return invalid("ipAddrsNoIpam, floatingIPs or allowedSourcePrefixes", "network.permit[%d] %q is not known", i, word)
		}
	}
	return nil
}
