// SPDX-License-Identifier: Apache-2.0

// Kubevirt-net configures a pod's network with KubeVirt's code, as an independent implementation for weft's tests. Each
// command is a part of KubeVirt: the webhook, virt-handler and virt-launcher; one acts as the guest.
package main

import (
	"errors"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const usage = `kubevirt-net admit <FILES         validates VMIs by the webhook: reads a list of manifests, prints a list of causes
kubevirt-net annotate FILE        which networks virt-controller has the pod attached to
kubevirt-net phase1 FILE PID      what virt-handler does in the network of the pod that process PID is in
kubevirt-net plug FILE PID        what it does when interfaces are hot-plugged or unplugged
kubevirt-net phase2 FILE          what virt-launcher does there: prints libvirt XML, serves DHCP until it is stopped
kubevirt-net status FILE DOMAIN   what virt-handler then says of the interfaces
kubevirt-net ask TAP MAC          is a guest that asks for its addresses`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubevirt-net:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	verbs := map[string]struct {
		args int
		do   func(vmi *v1.VirtualMachineInstance, args []string) error
	}{
		"annotate": {0, func(vmi *v1.VirtualMachineInstance, _ []string) error { return annotate(vmi) }},
		"phase1":   {1, phase1},
		"plug":     {1, plug},
		"phase2":   {0, func(vmi *v1.VirtualMachineInstance, _ []string) error { return phase2(vmi) }},
		"status":   {1, status},
	}
	if len(args) == 1 && args[0] == "admit" {
		return admit(os.Stdin, os.Stdout)
	}
	if len(args) == 3 && args[0] == "ask" {
		return askDHCP(args[1], args[2])
	}
	if len(args) == 0 || verbs[args[0]].do == nil || len(args) != 2+verbs[args[0]].args {
		return errors.New("\n" + usage)
	}
	vmi, err := read(args[1])
	if err != nil {
		return err
	}
	return verbs[args[0]].do(vmi, args[2:])
}

func read(file string) (*v1.VirtualMachineInstance, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var vmi v1.VirtualMachineInstance
	return &vmi, yaml.UnmarshalStrict(text, &vmi)
}

// plugins are the binding plugins in the cluster's KubeVirt object.
func plugins() map[string]v1.InterfaceBindingPlugin {
	return map[string]v1.InterfaceBindingPlugin{
		"weft-direct": {
			NetworkAttachmentDefinition: "default/weft-direct", DomainAttachmentType: v1.Tap,
			Migration: &v1.InterfaceBindingMigration{},
		},
		"managed": {DomainAttachmentType: v1.ManagedTap},
	}
}
