// SPDX-License-Identifier: Apache-2.0

package model

// The reasons of a Node's condition NetworkUnavailable that weft writes: the first two if it is False, flannel's own where
// weft replaces flannel.
const (
	ReasonWeftIsUp    = "WeftIsUp"
	ReasonFlannelIsUp = "FlannelIsUp"
	// ReasonNoPodCIDR: the node has no addresses for pods; ReasonNoAddressPool: the cluster has no pool for them.
	ReasonNoPodCIDR     = "NoPodCIDR"
	ReasonNoAddressPool = "NoAddressPool"
	// ReasonNotConfigured: the runtime's network configuration cannot be written.
	ReasonNotConfigured = "NetworkNotConfigured"
	// ReasonMeshFailed: the routes and tunnel devices that the node needs for all others cannot be made.
	ReasonMeshFailed = "MeshFailed"
)

// NetworkUnavailableReasons returns the reasons of a Node's condition NetworkUnavailable that weft writes.
func NetworkUnavailableReasons() []string {
	return []string{
		ReasonWeftIsUp, ReasonFlannelIsUp, ReasonNoPodCIDR, ReasonNoAddressPool, ReasonNotConfigured, ReasonMeshFailed,
	}
}
