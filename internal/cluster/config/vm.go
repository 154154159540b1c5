// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/weft-net/weft/internal/model"

// Values of VirtualMachines.KeepAddresses.
const (
	KeepPossible = "possible"
	KeepAlways   = "always"
	KeepNever    = "never"
)

// Keep returns the default for VMs whose pods do not have the annotation.
func (v VirtualMachines) Keep() model.KeepAddress {
	switch v.KeepAddresses {
	case KeepAlways:
		return model.KeepAlways
	case KeepNever:
		return model.KeepNever
	}
	return model.KeepIfSupported
}

func (v VirtualMachines) check() error {
	switch v.KeepAddresses {
	case KeepPossible, KeepAlways, KeepNever:
		return nil
	}
	return invalid("possible, always or never", "virtualMachines.keepAddresses %q is not known", v.KeepAddresses)
}
