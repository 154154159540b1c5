// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"fmt"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/network/cache"
	"kubevirt.io/kubevirt/pkg/network/domainspec"
	"kubevirt.io/kubevirt/pkg/network/setup/launcher"
	"kubevirt.io/kubevirt/pkg/network/vmispec"
	"kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/api"
	converter "kubevirt.io/kubevirt/pkg/virt-launcher/virtwrap/converter/network"
)

// phase2 runs in the pod.
func phase2(vmi *v1.VirtualMachineInstance) error {
	nics := vmispec.FilterInterfacesSpec(vmi.Spec.Domain.Devices.Interfaces, func(i v1.Interface) bool {
		return i.State != v1.InterfaceStateAbsent
	})
	networks := vmispec.FilterNetworksByInterfaces(vmi.Spec.Networks, nics)
	taps := domainspec.DomainAttachmentByInterfaceName(vmi.Spec.Domain.Devices.Interfaces, plugins())
	model := "virtio-non-transitional"
	if t := vmi.Spec.Domain.Devices.UseVirtioTransitional; t != nil && *t {
		model = "virtio-transitional"
	}
	var domain api.Domain
	configurator := converter.NewDomainConfigurator(converter.WithDomainAttachmentByInterfaceName(taps),
		converter.WithROMTuningSupport(true), converter.WithVirtioModel(model))
	if err := configurator.Configure(vmi, &domain); err != nil {
		return err
	}
	if err := launcher.NewVMNetworkConfigurator(vmi, cache.CacheCreator{},
		launcher.WithDomainAttachments(taps)).SetupPodNetworkPhase2(&domain, networks); err != nil {
		return err
	}
	text, err := xml.MarshalIndent(struct {
		XMLName    xml.Name        `xml:"devices"`
		Interfaces []api.Interface `xml:"interface"`
	}{Interfaces: domain.Spec.Devices.Interfaces}, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	_, _ = os.Stdin.Read(make([]byte, 1)) // exit at EOF
	return nil
}
