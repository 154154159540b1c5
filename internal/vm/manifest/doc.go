// SPDX-License-Identifier: Apache-2.0

// Package manifest reads KubeVirt's manifests, VirtualMachineInstance and VirtualMachine, from a user or an API server,
// and converts their network configuration to model values. Only this package knows KubeVirt's types.
//
// It enforces every rule of KubeVirt's admission webhook for interfaces and networks, and errors have the path of the
// field as KubeVirt writes it. It also refuses what KubeVirt admits but cannot work: two interfaces with one MAC
// address, a subnet that is too small for two addresses.
package manifest
