// SPDX-License-Identifier: Apache-2.0

// Package manifest reads KubeVirt's manifests, VirtualMachineInstance and VirtualMachine, as a user or an API server
// has them, and turns what they say of the network into model values. It is the one room that knows KubeVirt's types.
//
// Every rule of KubeVirt's own admission that is about interfaces and networks is kept, and named by the path of the
// field as KubeVirt writes it. Where KubeVirt lets something pass that fails later (two interfaces with one MAC, a
// subnet too small for two addresses), it is refused here.
package manifest
