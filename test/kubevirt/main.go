// SPDX-License-Identifier: Apache-2.0

// Kubevirt-net does to a pod's network what KubeVirt does, with KubeVirt's own code, so that weft's tests have somebody
// to ask who is not weft. Each verb is a part of KubeVirt's: the webhook, virt-handler and virt-launcher, and one plays
// the guest.
package main

import (
	"errors"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const usage = `kubevirt-net admit <FILES         what the webhook says of machines: a list of manifests in, a list of its causes out
kubevirt-net annotate FILE        which networks virt-controller has the pod attached to
kubevirt-net phase1 FILE PID      what virt-handler does in the network of the pod that process PID is in
kubevirt-net plug FILE PID        what it does there when interfaces of a machine that runs come or go
kubevirt-net phase2 FILE          what virt-launcher does there: prints libvirt's words, answers DHCP until it is ended
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
		return ask(args[1], args[2])
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

// plugins are the binding plugins that the cluster's KubeVirt object would name.
func plugins() map[string]v1.InterfaceBindingPlugin {
	return map[string]v1.InterfaceBindingPlugin{
		"weft-direct": {
			NetworkAttachmentDefinition: "default/weft-direct", DomainAttachmentType: v1.Tap,
			Migration: &v1.InterfaceBindingMigration{},
		},
		"managed": {DomainAttachmentType: v1.ManagedTap},
	}
}
