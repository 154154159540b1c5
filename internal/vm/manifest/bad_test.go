// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestBadManifests: each rule, violated once, with its message.
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
			`spec.domain.devices.interfaces[1].name: duplicate interface name "default"`,
		},
		{
			"[{name: default, bridge: {}}]", "[{name: default, pod: {}}, {name: default, multus: {networkName: a}}]",
			`spec.networks[1].name: duplicate network name "default"`,
		},
		{"[{name: 'a b', bridge: {}}]", "[{name: 'a b', pod: {}}]", nic + `.name: "a b" is not a valid interface name`},
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
		{"[{name: default}]", podNetwork, nic + `: interface "default" has 0 bindings, not one`},
		{
			"[{name: default, bridge: {}, masquerade: {}}]", podNetwork,
			nic + `: interface "default" has 2 bindings, not one`,
		},
		{
			"[{name: default, slirp: {}}]", podNetwork, nic +
				`.slirp: slirp is not supported; KubeVirt removed it in 1.3`,
		},
		{
			"[{name: default, passt: {}}]", podNetwork, nic +
				`.passt: passt is not supported`,
		},
		{
			"[{name: default, passtBinding: {}}]", podNetwork,
			nic + `.passtBinding: passt is not supported`,
		},
		{
			"[{name: default, binding: {name: passt}}]", podNetwork,
			nic + `.binding.name: passt is not supported`,
		},
		{"[{name: default, binding: {name: x}}]", podNetwork, nic + `.binding.name: binding plugin "x" is not known`},
		{"[{name: default, binding: {}}]", podNetwork, nic + `.binding.name: it is empty`},
		{
			"[{name: default, binding: {name: odd}}]", podNetwork,
			nic + `.binding.name: binding plugin "odd": domainAttachmentType "vhost" is not supported`,
		},
		{
			"[{name: b, masquerade: {}}]", "[{name: b, multus: {networkName: b}}]",
			nic + `.name: network "b" is not the pod network: masquerade supports no other`,
		},
		{"[{name: default, bridge: {}, model: ne2000}]", podNetwork, nic + `.model: "ne2000" is not an interface model`},
		{"[{name: default, bridge: {}, macAddress: x}]", podNetwork, nic + `.macAddress: "x" is not a MAC address`},
		{
			"[{name: default, bridge: {}, macAddress: '00:00:00:00:fe:80:00:00'}]", podNetwork,
			nic + `.macAddress: "00:00:00:00:fe:80:00:00" is not a MAC address`,
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
			"[{name: default, bridge: {}, macAddress: '02:00:00:00:00:01'}, {name: b, bridge: {}, macAddress: '02-00-00-00-00-01'}]", two, `spec.domain.devices.interfaces[1].macAddress: 02-00-00-00-00-01 is already the address of interface "default"`,
		},
		{
			"[{name: default, bridge: {}, pciAddress: '81:01.0'}]", podNetwork,
			nic + `.pciAddress: "81:01.0" is not a PCI address`,
		},
		{
			"[{name: default, bridge: {}, pciAddress: '0000:00:1a.0'}, {name: b, bridge: {}, pciAddress: '0000:00:1A.0'}]", two,
			`spec.domain.devices.interfaces[1].pciAddress: 0000:00:1A.0 is already the address of interface "default"`,
		},
		{"[{name: default, bridge: {}, bootOrder: 0}]", podNetwork, nic + `.bootOrder: 0 is not a boot order`},
		{
			"[{name: default, bridge: {}, bootOrder: 1}, {name: b, bridge: {}, bootOrder: 1}]", two,
			`spec.domain.devices.interfaces[1].bootOrder: 1 is already the boot order of interface default`,
		},
		{"[{name: default, bridge: {}, acpiIndex: 16384}]", podNetwork, nic + `.acpiIndex: 16384 is not an ACPI index`},
		{
			"[{name: default, bridge: {}, acpiIndex: 3}, {name: b, bridge: {}, acpiIndex: 3}]", two,
			`spec.domain.devices.interfaces[1].acpiIndex: 3 is already the ACPI index of interface "default"`,
		},
		{"[{name: default, bridge: {}, state: gone}]", podNetwork, nic + `.state: "gone" is not an interface state`},
		{
			"[{name: default, sriov: {}, state: down}]", podNetwork,
			nic + `.state: "down": the link of an SR-IOV device cannot be set`,
		},
		{"[{name: default, masquerade: {}, state: absent}]", podNetwork, nic + `.state: "absent" is not supported for this binding`},
		{
			"[{name: default, bridge: {}, state: absent}]", podNetwork,
			nic + `.state: "absent": the pod's default network cannot be unplugged`,
		},
		{"[{name: default, masquerade: {}, ports: [{port: 0}]}]", podNetwork, nic + `.ports[0].port: 0 is not a port`},
		{"[{name: default, masquerade: {}, ports: [{port: 65536}]}]", podNetwork, nic + `.ports[0].port: 65536 is not a port`},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1, protocol: SCTP}]}]", podNetwork,
			nic + `.ports[0].protocol: "SCTP" is not understood`,
		},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1, name: a}, {port: 2, name: a}]}]", podNetwork,
			nic + `.ports[1].name: duplicate port name "a"`,
		},
		{
			"[{name: default, masquerade: {}, portRanges: [{protocol: TCP, start: 9, end: 8}]}]", podNetwork,
			nic + `.portRanges[0].start: 9 is greater than the end, 8`,
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
			nic + `.portRanges: only the masquerade binding supports them`,
		},
		{
			"[{name: default, masquerade: {}, ports: [{port: 1}], portRanges: [{protocol: TCP, start: 1, end: 8}]}]", podNetwork,
			nic + `.portRanges: the interface has both ports and portRanges`,
		},
		{
			"[{name: default, bridge: {}, portRanges: [{protocol: TCP, start: 0, end: 8}]}]", podNetwork,
			nic + `.portRanges: only the masquerade binding supports them; ` + nic + `.portRanges[0].start: 0 is not a port`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {ntpServers: ['::1']}}]", podNetwork,
			nic + `.dhcpOptions.ntpServers[0]: "::1" is not an IPv4 address`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {bootFileName: " + long + "}}]", podNetwork,
			nic + `.dhcpOptions.bootFileName: 256 bytes; the maximum is 255`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {privateOptions: [{option: 255, value: a}]}}]", podNetwork,
			nic + `.dhcpOptions.privateOptions[0].option: 255 is not a private option`,
		},
		{
			"[{name: default, bridge: {}, dhcpOptions: {privateOptions: [{option: 224, value: a}, {option: 224, value: b}]}}]",
			podNetwork, nic + `.dhcpOptions.privateOptions[1].option: duplicate option 224`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: x}}]",
			`spec.networks[0].pod.vmNetworkCIDR: "x" is not a subnet of that family`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: 10.0.2.0/31}}]",
			`spec.networks[0].pod.vmNetworkCIDR: 10.0.2.0/31 is too small for the addresses of the gateway and the guest`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmIPv6NetworkCIDR: 10.0.2.0/24}}]",
			`spec.networks[0].pod.vmIPv6NetworkCIDR: "10.0.2.0/24" is not a subnet of that family`,
		},
		{
			"[{name: default, masquerade: {}}]", "[{name: default, pod: {vmNetworkCIDR: 127.0.0.0/24}}]",
			`spec.networks[0].pod.vmNetworkCIDR: 127.0.0.0/24 has no addresses for guests`,
		},
	} {
		_, err := Read([]byte(instance(c.interfaces, c.networks)), Options{Bindings: map[string]string{"odd": "vhost"}})
		var fault *model.Error
		if !errors.As(err, &fault) || fault.Msg != c.want {
			t.Errorf("interfaces %s\nnetworks %s\n got %v\nwant %s", c.interfaces, c.networks, err, c.want)
		}
	}
}

// TestSecondaryPorts: ports on a secondary network have no effect, as in KubeVirt.
func TestSecondaryPorts(t *testing.T) {
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

// TestHostnames: hostnames of guests, and invalid ones.
func TestHostnames(t *testing.T) {
	text := instance("[{name: default, bridge: {}}]", podNetwork)
	long := strings.Repeat("a", 70)
	for name, want := range map[string]string{"vm1": "vm1", "vm1.shop.example": "vm1", long: long[:63]} {
		if vm := mustRead(t, strings.Replace(text, "{name: vm1}", "{name: "+name+"}", 1), Options{}); vm.Hostname != want {
			t.Errorf("%s has hostname %s", name, vm.Hostname)
		}
	}
	_, err := Read([]byte(strings.Replace(text, "spec:\n", "spec:\n  hostname: a.b\n  subdomain: B\n", 1)), Options{})
	if err == nil || !strings.HasPrefix(err.Error(), `spec.hostname: "a.b" is not a valid hostname: `) ||
		!strings.Contains(err.Error(), `; spec.subdomain: "B" is not a valid subdomain: `) {
		t.Errorf("%v", err)
	}
}

// TestManyErrors: all errors are in one message, and a template has its own path.
func TestManyErrors(t *testing.T) {
	text := strings.Replace(instance("[{name: default, masquerade: {}, model: x, bootOrder: 0}]", podNetwork),
		"VirtualMachineInstance", "VirtualMachine", 1)
	text = strings.Replace(text, "spec:\n", "spec: {template: {spec: {", 1)
	text = strings.Replace(text, "  domain:\n    devices:\n      interfaces: ", "domain: {devices: {interfaces: ", 1)
	text = strings.Replace(text, "\n  networks: ", "}}, networks: ", 1)
	text = strings.TrimSuffix(text, "\n") + "}}}\n"
	_, err := Read([]byte(text), Options{})
	const want = `spec.template.spec.domain.devices.interfaces[0].model: "x" is not an interface model; ` +
		`spec.template.spec.domain.devices.interfaces[0].bootOrder: 0 is not a boot order (e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139, virtio)`
	if err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}
