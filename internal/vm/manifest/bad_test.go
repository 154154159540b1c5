// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestBadManifests: each rule, broken alone, with the message that it gives.
func TestBadManifests(t *testing.T) {
	const (
		nic = "spec.domain.devices.interfaces[0]"
		two = "[{name: default, pod: {}}, {name: b, multus: {networkName: b}}]"
	)
	long := strings.Repeat("x", 256)
	for _, c := range []struct{ interfaces, networks, want string }{
		{"[{name: x, bridge: {}}]", "[]", nic + `.name: no network is named "x"`},
		{"[]", "[{name: x, pod: {}}]", `spec.networks[0].name: no interface is named "x"`},
		{
			"[{name: default, bridge: {}}, {name: default, bridge: {}}]", podNetwork,
			`spec.domain.devices.interfaces[1].name: an interface of the name "default" stands before it`,
		},
		{
			"[{name: default, bridge: {}}]", "[{name: default, pod: {}}, {name: default, multus: {networkName: a}}]",
			`spec.networks[1].name: a network of the name "default" stands before it`,
		},
		{"[{name: 'a b', bridge: {}}]", "[{name: 'a b', pod: {}}]", nic + `.name: "a b" cannot be an interface's name`},
		{"[{name: default, bridge: {}}]", "[{name: default}]", `spec.networks[0]: network "default" has no source`},
		{
			"[{name: default, bridge: {}}]", "[{name: default, pod: {}, multus: {networkName: a}}]",
			`spec.networks[0]: network "default" has several sources`,
		},
		{
			"[{name: default, bridge: {}}]", "[{name: default, multus: {}}]", `spec.networks[0].multus.networkName: it is empty`,
		},
		{
			"[{name: default, sriov: {}}]", "[{name: default, resourceClaim: {claimName: a}}]",
			`spec.networks[0].resourceClaim: networks from resource claims are not supported`,
		},
		{
			"[{name: default, bridge: {}}, {name: b, bridge: {}}]", "[{name: default, pod: {}}, {name: b, pod: {}}]",
			`spec.networks[1]: default and b are both the pod's default network`,
		},
		{
			"[{name: default, bridge: {}}, {name: b, bridge: {}}]",
			"[{name: default, pod: {}}, {name: b, multus: {networkName: a, default: true}}]",
			`spec.networks[1]: default and b are both the pod's default network`,
		},
		{"[{name: default}]", podNetwork, nic + `: interface "default" is bound in 0 ways, not in one`},
		{
			"[{name: default, bridge: {}, masquerade: {}}]", podNetwork,
			nic + `: interface "default" is bound in 2 ways, not in one`,
		},
		{
			"[{name: default, slirp: {}}]", podNetwork, nic +
				`.slirp: the user-mode stack of QEMU is not supported; KubeVirt has none since 1.3`,
		},
		{
			"[{name: default, passt: {}}]", podNetwork, nic +
				`.passt: connections carried by a process for each guest are not supported`,
		},
		{
			"[{name: default, passtBinding: {}}]", podNetwork,
			nic + `.passtBinding: connections carried by a process for each guest are not supported`,
		},
		{
			"[{name: default, binding: {name: passt}}]", podNetwork,
			nic + `.binding.name: connections carried by a process for each guest are not supported`,
		},
		{"[{name: default, binding: {name: x}}]", podNetwork, nic + `.binding.name: no binding plugin "x" is known`},
		{"[{name: default, binding: {}}]", podNetwork, nic + `.binding.name: it is empty`},
		{
			"[{name: default, binding: {name: odd}}]", podNetwork,
			nic + `.binding.name: binding plugin "odd": domainAttachmentType "vhost" is not supported`,
		},
		{
			"[{name: b, masquerade: {}}]", "[{name: b, multus: {networkName: b}}]",
			nic + `.name: network "b" is not the pod's: masquerade has only that one`,
		},
		{"[{name: default, bridge: {}, model: ne2000}]", podNetwork, nic + `.model: "ne2000" is no model of an interface`},
		{"[{name: default, bridge: {}, macAddress: x}]", podNetwork, nic + `.macAddress: "x" is no MAC address`},
		{
			"[{name: default, bridge: {}, macAddress: '00:00:00:00:fe:80:00:00'}]", podNetwork,
			nic + `.macAddress: "00:00:00:00:fe:80:00:00" is no MAC address`,
		},
		{
			"[{name: default, bridge: {}, macAddress: '01:00:00:00:00:01'}]", podNetwork,
			nic + `.macAddress: 01:00:00:00:00:01 is not a unicast address`,
		},
		{
			"[{name: default, masquerade: {}, macAddress: '02-00-00-00-00-00'}]", podNetwork,
			nic + `.macAddress: 02-00-00-00-00-00 is the address of the bridge in the pod`,
		},
		{
			"[{name: default, bridge: {}, macAddress: '02:00:00:00:00:01'}, {name: b, bridge: {}, macAddress: '02-00-00-00-00-01'}]", two, `spec.domain.devices.interfaces[1].macAddress: 02-00-00-00-00-01 is the address of interface "default" already`,
		},
		{
			"[{name: default, bridge: {}, pciAddress: '81:01.0'}]", podNetwork,
			nic + `.pciAddress: "81:01.0" is no address on the PCI bus`,
		},
		{
			"[{name: default, bridge: {}, pciAddress: '0000:00:1a.0'}, {name: b, bridge: {}, pciAddress: '0000:00:1A.0'}]", two,
			`spec.domain.devices.interfaces[1].pciAddress: 0000:00:1A.0 is the address of interface "default" already`,
		},
		{"[{name: default, bridge: {}, bootOrder: 0}]", podNetwork, nic + `.bootOrder: 0 is no place in the order`},
		{
			"[{name: default, bridge: {}, bootOrder: 1}, {name: b, bridge: {}, bootOrder: 1}]", two,
			`spec.domain.devices.interfaces[1].bootOrder: 1 is the place of interface default already`,
		},
		{"[{name: default, bridge: {}, acpiIndex: 16384}]", podNetwork, nic + `.acpiIndex: 16384 is no index`},
		{
			"[{name: default, bridge: {}, acpiIndex: 3}, {name: b, bridge: {}, acpiIndex: 3}]", two,
			`spec.domain.devices.interfaces[1].acpiIndex: 3 is the index of interface "default" already`,
		},
		{"[{name: default, bridge: {}, state: gone}]", podNetwork, nic + `.state: "gone" is no state of an interface`},
		{
			"[{name: default, sriov: {}, state: down}]", podNetwork,
			nic + `.state: "down": the link of a device of the guest's own cannot be set`,
		},
		{"[{name: default, masquerade: {}, state: absent}]", podNetwork, nic + `.state: "absent" is not possible here`},
		{
			"[{name: default, bridge: {}, state: absent}]", podNetwork,
			nic + `.state: "absent": the pod's default network cannot be taken away`,
		},
		{"[{name: default, masquerade: {}, ports: [{port: 0}]}]", podNetwork, nic + `.ports[0].port: 0 is no port`},
		{"[{name: default, masquerade: {}, ports: [{port: 65536}]}]", podNetwork, nic + `.ports[0].port: 65536 is no port`},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1, protocol: SCTP}]}]", podNetwork,
			nic + `.ports[0].protocol: "SCTP" is not understood`,
		},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1, name: a}, {port: 2, name: a}]}]", podNetwork,
			nic + `.ports[1].name: a port of the name "a" stands before it`,
		},
		{
			"[{name: default, masquerade: {}, portRanges: [{protocol: TCP, start: 9, end: 8}]}]", podNetwork,
			nic + `.portRanges[0].start: 9 is behind the end, 8`,
		},
		{
			"[{name: default, masquerade: {}, portRanges: [{start: 1, end: 8}]}]", podNetwork,
			nic + `.portRanges[0].protocol: "" is not understood`,
		},
		{
			"[{name: default, masquerade: {}, portRanges: [{protocol: TCP, start: 1, end: 8}, {protocol: TCP, start: 8, end: 9}]}]", podNetwork, nic + `.portRanges[1]: TCP 8-9 overlaps 1-8`,
		},
		{
			"[{name: default, bridge: {}, portRanges: [{protocol: TCP, start: 1, end: 8}]}]", podNetwork,
			nic + `.portRanges: only an interface bound by masquerade has them`,
		},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1}], portRanges: [{protocol: TCP, start: 1, end: 8}]}]", podNetwork,
			nic + `.portRanges: the interface has ports beside them`,
		},
		{
			"[{name: default, bridge: {}, portRanges: [{protocol: TCP, start: 0, end: 8}]}]", podNetwork,
			nic + `.portRanges: only an interface bound by masquerade has them; ` + nic + `.portRanges[0].start: 0 is no port`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {ntpServers: ['::1']}}]", podNetwork,
			nic + `.dhcpOptions.ntpServers[0]: "::1" is no IPv4 address`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {bootFileName: " + long + "}}]", podNetwork,
			nic + `.dhcpOptions.bootFileName: 256 bytes, an option holds 255`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {privateOptions: [{option: 255, value: a}]}}]", podNetwork,
			nic + `.dhcpOptions.privateOptions[0].option: 255 is no private option`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {privateOptions: [{option: 224, value: a}, {option: 224, value: b}]}}]",
			podNetwork, nic + `.dhcpOptions.privateOptions[1].option: 224 stands before it`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: x}}]",
			`spec.networks[0].pod.vmNetworkCIDR: "x" is no subnet of its family`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: 10.0.2.0/31}}]",
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/31 has no room for the addresses of the gateway and of the guest`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmIPv6NetworkCIDR: 10.0.2.0/24}}]",
			`spec.networks[0].pod.vmIPv6NetworkCIDR: "10.0.2.0/24" is no subnet of its family`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: 127.0.0.0/24}}]",
			`spec.networks[0].pod.vmNetworkCIDR: 127.0.0.0/24 has no addresses for guests`,
		},
	} {
		_, err := Read([]byte(instance(c.interfaces, c.networks)), Options{Bindings: map[string]string{"odd": "vhost"}})
		var fault *model.Fault
		if !errors.As(err, &fault) || fault.Msg != c.want {
			t.Errorf("interfaces %s\nnetworks %s\n got %v\nwant %s", c.interfaces, c.networks, err, c.want)
		}
	}
}

// TestFarPorts: what a machine says of ports means something on the pod's network alone, as with KubeVirt.
func TestFarPorts(t *testing.T) {
	vm, err := Read(
		[]byte(
			instance("[{name: b, bridge: {}, ports: [{port: 0, name: B_}], portRanges: [{protocol: TCP, start: 9, end: 8}]}]",
				"[{name: b, multus: {networkName: b}}]"),
		), Options{},
	)
	if err != nil || len(vm.Interfaces) != 1 || len(vm.Interfaces[0].Ports) != 0 {
		t.Errorf("%+v %v", vm.Interfaces, err)
	}
}

// TestHostnames: what a guest is called, and what it cannot be called.
func TestHostnames(t *testing.T) {
	text := instance("[{name: default, bridge: {}}]", podNetwork)
	long := strings.Repeat("a", 70)
	for name, want := range map[string]string{"vm1": "vm1", "vm1.shop.example": "vm1", long: long[:63]} {
		if vm := mustRead(t, strings.Replace(text, "{name: vm1}", "{name: "+name+"}", 1), Options{}); vm.Hostname != want {
			t.Errorf("%s is told to be called %s", name, vm.Hostname)
		}
	}
	_, err := Read([]byte(strings.Replace(text, "spec:\n", "spec:\n  hostname: a.b\n  subdomain: B\n", 1)), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), `spec.hostname: "a.b" cannot be a host's name: `) ||
		!strings.Contains(err.Error(), `; spec.subdomain: "B" cannot be a domain's name: `) {
		t.Errorf("%v", err)
	}
}

// TestManyFaults: all are told at once, and a template's path is its own.
func TestManyFaults(t *testing.T) {
	text := strings.Replace(instance("[{name: default, masquerade: {}, model: x, bootOrder: 0}]", podNetwork),
		"VirtualMachineInstance", "VirtualMachine", 1)
	text = strings.Replace(text, "spec:\n", "spec: {template: {spec: {", 1)
	text = strings.Replace(text, "  domain:\n    devices:\n      interfaces: ", "domain: {devices: {interfaces: ", 1)
	text = strings.Replace(text, "\n  networks: ", "}}, networks: ", 1)
	text = strings.TrimSuffix(text, "\n") + "}}}\n"
	_, err := Read([]byte(text), Options{})
	const want = `spec.template.spec.domain.devices.interfaces[0].model: "x" is no model of an interface; ` +
		`spec.template.spec.domain.devices.interfaces[0].bootOrder: 0 is no place in the order (e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139, virtio)`
	if err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}
