// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"

	v1 "kubevirt.io/api/core/v1"
)

// pick returns a random value; the first is the likeliest, so that not all VMIs are invalid.
func pick[T any](r *rand.Rand, first T, others ...T) T {
	if len(others) == 0 || r.IntN(12) > 0 {
		return first
	}
	return others[r.IntN(len(others))]
}

// randomVMI returns a VMI with up to three interfaces, usually with one or two invalid fields.
func randomVMI(r *rand.Rand) v1.VirtualMachineInstance {
	var vmi v1.VirtualMachineInstance
	vmi.APIVersion, vmi.Kind, vmi.Name = "kubevirt.io/v1", "VirtualMachineInstance", "vm1"
	for i := range 1 + r.IntN(3) {
		name := pick(r, fmt.Sprint("net", i), "net0", "a b", "other")
		nic := randomNIC(r, i == 0)
		nic.Name = pick(r, name, "net1", "")
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, nic)
		vmi.Spec.Networks = append(vmi.Spec.Networks, v1.Network{Name: name, NetworkSource: randomSource(r, i == 0)})
	}
	if r.IntN(20) == 0 {
		vmi.Spec.Networks = vmi.Spec.Networks[1:]
	}
	if len(vmi.Spec.Networks) == 0 {
		vmi.Spec.Domain.Devices.AutoattachPodInterface = new(bool)
	}
	return vmi
}

func randomSource(r *rand.Rand, first bool) v1.NetworkSource {
	pod := v1.NetworkSource{Pod: &v1.PodNetwork{}}
	blue := v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "blue"}}
	odd := []v1.NetworkSource{
		pod, blue,
		{},
		{Pod: pod.Pod, Multus: blue.Multus},
		{Multus: &v1.MultusNetwork{}},
		{Multus: &v1.MultusNetwork{NetworkName: "blue", Default: true}},
	}
	if first {
		return pick(r, pod, odd...)
	}
	return pick(r, blue, odd...)
}

func randomNIC(r *rand.Rand, first bool) v1.Interface {
	masquerade := v1.Interface{InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}}
	bridge := v1.Interface{InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}}
	odd := []v1.Interface{
		masquerade, bridge,
		{},
		{InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: bridge.Bridge, Masquerade: masquerade.Masquerade}},
		{InterfaceBindingMethod: v1.InterfaceBindingMethod{DeprecatedSlirp: &v1.DeprecatedInterfaceSlirp{}}},
		{InterfaceBindingMethod: v1.InterfaceBindingMethod{DeprecatedPasst: &v1.DeprecatedInterfacePasst{}}},
		{Binding: &v1.PluginBinding{Name: "weft-direct"}},
		{Binding: &v1.PluginBinding{Name: "managed"}},
	}
	nic := pick(r, bridge, odd...)
	if first && r.IntN(2) == 0 {
		nic = pick(r, masquerade, odd...)
	}
	nic.Model = pick(r, "", "e1000", "virtio", "igb", "ne2000", "VIRTIO")
	nic.MacAddress = pick(r, "", "02:00:00:00:00:00", "02-00-00-00-00-07", "de:ad:be:ef:00:0"+fmt.Sprint(r.IntN(9)), "x",
		"02:00:00:00:00", "01:00:5e:00:00:01", "00:00:00:00:00:00", "00:00:00:00:fe:80:00:00", "0200.0000.0007")
	nic.PciAddress = pick(r, "", fmt.Sprintf("0000:81:0%d.1", r.IntN(9)), "81:01.0", "0000:80:11.9", "0000:80:80:1.0",
		"00000:00:01.0", "0000:g1:01.0")
	nic.State = pick(r, "", v1.InterfaceStateLinkUp, v1.InterfaceStateLinkDown, v1.InterfaceStateAbsent, "gone")
	if r.IntN(4) == 0 {
		for range 1 + r.IntN(3) {
			nic.Ports = append(nic.Ports, v1.Port{
				Name:     pick(r, "", "http", "http", "Bad_Name", "a-name-that-is-longer-than-fifteen"),
				Protocol: pick(r, "TCP", "", "UDP", "SCTP", "tcp"),
				Port:     pick[int32](r, 80, 0, -1, 65535, 65536, 53),
			})
		}
	}
	if r.IntN(8) == 0 {
		for range pick(r, 1, 2, 3, 11) {
			nic.PortRanges = append(nic.PortRanges, v1.PortRange{
				Protocol: pick(r, "TCP", "UDP", "", "SCTP"), Start: pick[int32](r, 80, 0, 90, 65536, 100),
				End: pick[int32](r, 90, 80, 65535, 0, 70000, 200),
			})
		}
	}
	if r.IntN(6) == 0 {
		nic.DHCPOptions = &v1.DHCPOptions{
			NTPServers: []string{pick(r, "192.0.2.1", "::1", "x", "192.0.2.300", "::ffff:192.0.2.1")},
		}
		for range r.IntN(3) {
			nic.DHCPOptions.PrivateOptions = append(nic.DHCPOptions.PrivateOptions, v1.DHCPPrivateOptions{
				Option: pick(r, 224+r.IntN(30), 223, 255, 254, 224), Value: "x",
			})
		}
	}
	return nic
}
