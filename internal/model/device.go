// SPDX-License-Identifier: Apache-2.0

package model

// PublishedDevice is a device as the driver of a dynamic resource has published it, with what it says for networks.
type PublishedDevice struct {
	Pool string
	Name string
	// ID is the device's for the plugins of networks, Resource that by which networks name such devices.
	ID       string
	Resource string
}
