// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestBad: each rule of KubeVirt's webhook is violated separately. With -v a table of both messages is written to the
// directory of the programs.
func TestBad(t *testing.T) {
	const pods, two = "[{name: default, pod: {}}]", "[{name: default, pod: {}}, {name: b, multus: {networkName: b}}]"
	masquerade := func(rest string) string { return "[{name: default, masquerade: {}, " + rest + "}]" }
	bridge := func(rest string) string { return "[{name: default, bridge: {}, " + rest + "}]" }
	eleven := strings.Repeat("{protocol: TCP, start: 1, end: 1}, ", 11)
	var vmis []v1.VirtualMachineInstance
	for _, c := range [][2]string{
		{"[{name: x, bridge: {}}]", "[]"},
		{"[]", "[{name: x, pod: {}}]"},
		{"[{name: default, bridge: {}}, {name: default, bridge: {}}]", pods},
		{"[{name: default, bridge: {}}]", "[{name: default, pod: {}}, {name: default, multus: {networkName: a}}]"},
		{"[{name: 'a b', bridge: {}}]", "[{name: 'a b', pod: {}}]"},
		{"[{name: default, bridge: {}}]", "[{name: default}]"},
		{"[{name: default, bridge: {}}]", "[{name: default, pod: {}, multus: {networkName: a}}]"},
		{"[{name: default, bridge: {}}]", "[{name: default, multus: {}}]"},
		{"[{name: default, bridge: {}}, {name: b, bridge: {}}]", "[{name: default, pod: {}}, {name: b, pod: {}}]"},
		{
			"[{name: default, bridge: {}}, {name: b, bridge: {}}]",
			"[{name: default, pod: {}}, {name: b, multus: {networkName: a, default: true}}]",
		},
		{
			"[{name: default, bridge: {}}, {name: b, bridge: {}}]",
			"[{name: default, multus: {networkName: a, default: true}}, {name: b, multus: {networkName: a, default: true}}]",
		},
		{"[{name: default}]", pods},
		{"[{name: default, bridge: {}, masquerade: {}}]", pods},
		{"[{name: default, slirp: {}}]", pods},
		{"[{name: default, passt: {}}]", pods},
		{"[{name: default, bridge: {}}, {name: b, masquerade: {}}]", two},
		{bridge("model: ne2000"), pods},
		{bridge("macAddress: x"), pods},
		{bridge("macAddress: '00:00:00:00:fe:80:00:00'"), pods},
		{masquerade("macAddress: '02:00:00:00:00:00'"), pods},
		{bridge("pciAddress: '81:01.0'"), pods},
		{bridge("state: gone"), pods},
		{"[{name: default, bridge: {}}, {name: b, sriov: {}, state: down}]", two},
		{masquerade("state: absent"), pods},
		{bridge("state: absent"), pods},
		{masquerade("ports: [{port: 0}]"), pods},
		{masquerade("ports: [{port: 65536}]"), pods},
		{masquerade("ports: [{port: 1, protocol: SCTP}]"), pods},
		{masquerade("ports: [{port: 1, name: a_b}]"), pods},
		{masquerade("ports: [{port: 1, name: a}, {port: 2, name: a}]"), pods},
		{masquerade("portRanges: [{protocol: SCTP, start: 1, end: 8}]"), pods},
		{masquerade("portRanges: [{protocol: TCP, start: 0, end: 8}]"), pods},
		{masquerade("portRanges: [{protocol: TCP, start: 1, end: 65536}]"), pods},
		{masquerade("portRanges: [{protocol: TCP, start: 9, end: 8}]"), pods},
		{masquerade("portRanges: [{protocol: TCP, start: 1, end: 8}, {protocol: TCP, start: 8, end: 9}]"), pods},
		{masquerade("portRanges: [" + eleven + "]"), pods},
		{bridge("portRanges: [{protocol: TCP, start: 1, end: 8}]"), pods},
		{masquerade("ports: [{port: 1}], portRanges: [{protocol: TCP, start: 1, end: 8}]"), pods},
		{bridge("dhcpOptions: {ntpServers: ['::1']}"), pods},
		{bridge("dhcpOptions: {privateOptions: [{option: 255, value: a}]}"), pods},
		{bridge("dhcpOptions: {privateOptions: [{option: 224, value: a}, {option: 224, value: b}]}"), pods},
	} {
		text := fmt.Sprintf(
			"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: vm1}\nspec: {domain: {devices: {interfaces: %s}}, networks: %s}\n", c[0], c[1],
		)
		var vmi v1.VirtualMachineInstance
		if err := yaml.UnmarshalStrict([]byte(text), &vmi); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		vmis = append(vmis, vmi)
	}
	var table strings.Builder
	both, _ := compare(t, vmis, &table)
	if both != len(vmis) {
		t.Errorf("%d of %d are rejected by both", both, len(vmis))
	}
	if testing.Verbose() {
		if err := os.WriteFile(filepath.Join(filepath.Dir(program("kubevirt-net")), "refused.md"), []byte(table.String()),
			0o644); err != nil {
			t.Error(err)
		}
	}
}
