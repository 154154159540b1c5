// SPDX-License-Identifier: Apache-2.0

package model

// PublishedDevice is a device of a ResourceSlice (dynamic resource allocation), with its attributes for network
// plugins.
type PublishedDevice struct {
	Pool string
	Name string
	// ID is the device's ID for network plugins, Resource the resource name by which networks refer to such devices.
	ID       string
	Resource string
}
