// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// instance returns a manifest with interfaces and networks in YAML's flow form.
func instance(interfaces, networks string) string {
	return "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: vm1}\nspec:\n  domain:\n    devices:\n      interfaces: " +
		interfaces + "\n  networks: " + networks + "\n"
}

const podNetwork = "[{name: default, pod: {}}]"

func mustRead(t *testing.T, text string, o Options) model.VM {
	t.Helper()
	vm, err := Read([]byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

func TestReadInstance(t *testing.T) {
	vm := mustRead(t, `
apiVersion: kubevirt.io/v1alpha3
kind: VirtualMachineInstance
metadata:
  name: vm1
  namespace: shop
  uid: 6b1f
  annotations: {sidecar.istio.io/inject: "true", kubevirt.io/migrationTransportUnix: ""}
spec:
  subdomain: db
  domain:
    cpu: {cores: 2, sockets: 3}
    resources: {requests: {memory: 64M}}
    devices:
      networkInterfaceMultiqueue: true
      useVirtioTransitional: true
      disks: [{name: root, bootOrder: 1, disk: {bus: virtio}}]
      interfaces:
      - name: default
        masquerade: {}
        macAddress: DE-AD-00-00-BE-AF
        bootOrder: 2
        pciAddress: "0000:81:01.0"
        acpiIndex: 7
        ports: [{name: http, port: 80}, {port: 53, protocol: UDP}]
        dhcpOptions:
          bootFileName: pxe.0
          tftpServerName: tftp.example
          ntpServers: [192.0.2.1]
          privateOptions: [{option: 240, value: extra}]
      - {name: blue, bridge: {}, model: e1000, state: down}
      - {name: fast, sriov: {}}
      - {name: wire, binding: {name: mine}}
      - {name: own, macvtap: {}}
  networks:
  - {name: default, pod: {vmNetworkCIDR: 10.11.12.0/24}}
  - {name: blue, multus: {networkName: shop/blue}}
  - {name: fast, multus: {networkName: fast}}
  - {name: wire, multus: {networkName: wire}}
  - {name: own, multus: {networkName: own}}
status:
  phase: Running
  runtimeUser: 107
  interfaces: [{name: blue, podInterfaceName: net1}]
`, Options{Bindings: map[string]string{"mine": "managedTap"}})
	want := model.VM{
		Namespace:    "shop",
		Name:         "vm1",
		UID:          "6b1f",
		Path:         "spec",
		Queues:       6,
		Transitional: true,
		Owner:        107,
		ServiceMesh:  true,
		Hostname:     "vm1",
		Subdomain:    "db",
		Interfaces: []model.VMInterface{
			{
				Name: "default", Binding: model.VMMasquerade, Model: "virtio", MAC: "de:ad:00:00:be:af", BootOrder: 2,
				PCIAddress: "0000:81:01.0", ACPIIndex: 7,
				Network: model.VMNetwork{
					Name: "default", Primary: true, Pod: true, CIDR4: netip.MustParsePrefix("10.11.12.0/24"),
					CIDR6: netip.MustParsePrefix("fd10:0:2::/120"),
				},
				Ports: []model.VMPortRange{{Protocol: "tcp", First: 80, Last: 80}, {Protocol: "udp", First: 53, Last: 53}},
				DHCP: model.VMDHCP{
					BootFileName: "pxe.0", TFTPServerName: "tftp.example", NTPServers: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
					Private: []model.VMDHCPOption{{Option: 240, Value: "extra"}},
				},
			},
			{
				Name: "blue", Index: 1, Binding: model.VMBridge, Model: "e1000", Down: true, PodLink: "net1",
				Network: model.VMNetwork{Name: "blue", Index: 1, Definition: "shop/blue"},
			},
			{
				Name: "fast", Index: 2, Binding: model.VMSRIOV, Model: "virtio",
				Network: model.VMNetwork{Name: "fast", Index: 2, Definition: "fast"},
			},
			{
				Name: "wire", Index: 3, Binding: model.VMManagedTap, Plugin: "mine", Model: "virtio",
				Network: model.VMNetwork{Name: "wire", Index: 3, Definition: "wire"},
			},
			{
				Name: "own", Index: 4, Binding: model.VMMacvtap, Model: "virtio",
				Network: model.VMNetwork{Name: "own", Index: 4, Definition: "own"},
			},
		},
	}
	if d := cmp.Diff(want, vm, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReadVM(t *testing.T) {
	text := `
apiVersion: v1
kind: Secret
metadata: {name: x}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: shop}
spec:
  runStrategy: Always
  template:
    metadata: {labels: {sidecar.istio.io/inject: "TRUE"}}
    spec:
      hostname: www
      domain:
        resources: {limits: {cpu: "4"}}
        devices: {networkInterfaceMultiqueue: true}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: other}
spec: {template: {spec: {domain: {devices: {autoattachPodInterface: false}}}}}
`
	web := mustRead(t, text, Options{Name: "web", Default: model.VMMasquerade})
	if web.Path != "spec.template.spec" || web.Queues != 4 || !web.ServiceMesh || web.Hostname != "www" ||
		len(web.MigrationPorts) != 2 || web.Owner != 107 ||
		len(web.Interfaces) != 1 || web.Interfaces[0].Binding != model.VMMasquerade || !web.Interfaces[0].Network.Pod {
		t.Errorf("web: %+v", web)
	}
	if bridged := mustRead(t, text, Options{Name: "web"}); bridged.Interfaces[0].Binding != model.VMBridge {
		t.Errorf("KubeVirt's default is bridge, have %+v", bridged.Interfaces)
	}
	if other := mustRead(t, text, Options{Name: "other"}); len(other.Interfaces) != 0 || other.Namespace != "default" {
		t.Errorf("other: %+v", other)
	}
	_, err := Read([]byte(text), Options{})
	if err == nil || err.Error() != "manifest: multiple virtual machines in it: web, other (choose one by its name)" {
		t.Errorf("several: %v", err)
	}
}

// TestBadDocuments: files without a VM that can be checked.
func TestBadDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "manifest: no virtual machine in it (it needs a VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 or v1alpha3)",
		"apiVersion: v1\nkind: Pod\n": "manifest: no virtual machine in it (it needs a VirtualMachineInstance or VirtualMachine of kubevirt.io/v1 or v1alpha3)",
		"apiVersion: kubevirt.io/v2\nkind: VirtualMachine\n":                                          `apiVersion "kubevirt.io/v2" of VirtualMachine is not understood (write kubevirt.io/v1)`,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {name: a}\n":                     "spec.template: it is missing",
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\n":                                  `metadata.name "" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
		"apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a, namespace: B}": `metadata.namespace "B" cannot be used (lower case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 of them)`,
	} {
		_, err := Read([]byte(text), Options{})
		var fault *model.Error
		if !errors.As(err, &fault) || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
	for _, text := range []string{"a: [", "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspec: 7\n"} {
		_, err := Read([]byte(text), Options{})
		var fault *model.Error
		if !errors.As(err, &fault) || fault.Code != model.CodeDecode {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(instance("[{name: default, masquerade: {}, ports: [{port: 80}]}]", podNetwork)))
	f.Add(
		[]byte(
			instance("[{name: a, bridge: {}, dhcpOptions: {ntpServers: [x], privateOptions: [{option: 9, value: y}]}}]",
				"[{name: a, multus: {networkName: b}}]"),
		),
	)
	f.Add(
		[]byte(
			strings.ReplaceAll(instance("[{name: default, sriov: {}}]", "[{name: default, pod: {vmNetworkCIDR: 0.0.0.0/0}}]"),
				"Instance", ""),
		),
	)
	f.Fuzz(func(t *testing.T, text []byte) {
		vm, err := Read(text, Options{})
		var fault *model.Error
		if err != nil && !errors.As(err, &fault) {
			t.Fatalf("an error that is no fault: %v", err)
		}
		for _, nic := range vm.Interfaces {
			if nic.Binding == "" || nic.Model == "" || nic.Network.Name != nic.Name {
				t.Fatalf("half an interface: %+v", nic)
			}
		}
	})
}
