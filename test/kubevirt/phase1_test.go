// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func itoa(n int) string { return strconv.Itoa(n) }

// writeVMI writes a manifest and returns its file. Interfaces and networks are in YAML's flow style; more is added
// below spec.domain.devices.
func writeVMI(t *testing.T, interfaces, networks, annotations, more string) string {
	t.Helper()
	file, transport, far := filepath.Join(t.TempDir(), "vm.yaml"), "", ""
	if strings.Contains(annotations, "migrationTransportUnix") {
		transport = "\n  migrationTransport: Unix"
	}
	if strings.Contains(networks, "blue") { // as set by virt-controller
		far = ", {name: blue, podInterfaceName: " + blue + ", infoSource: multus-status}"
	}
	text := fmt.Sprintf(`apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vm1, namespace: shop, uid: %q, annotations: {%s}}
spec:
  subdomain: sub
  domain:
    cpu: {cores: 2}
    devices: {%sinterfaces: %s}
  networks: %s
status:
  runtimeUser: 107%s
  interfaces: [{name: default, podInterfaceName: eth0}%s]
`, t.Name(), annotations, more, interfaces, networks, transport, far)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPhase1: the state of two equal pods after phase 1 by virt-handler and by weft.
func TestPhase1(t *testing.T) {
	const (
		pods   = "[{name: default, pod: {}}]"
		second = "[{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]"
		both   = "[{name: default, %s: {}}, {name: blue, bridge: {}}]"
		istio  = `sidecar.istio.io/inject: "true"`
		queues = "networkInterfaceMultiqueue: true, "
		// Ports and port ranges.
		ports  = "[{name: default, masquerade: {}, ports: [{port: 80}, {port: 22}, {port: 53, protocol: UDP}]}]"
		ranges = "[{name: default, masquerade: {}, portRanges: [{protocol: TCP, start: 80, end: 90}, {protocol: UDP, start: 53, end: 53}]}]"
	)
	dual := []string{"10.244.0.10/24", "fd00:244::10/64"}
	for _, c := range []struct {
		name, interfaces, networks, annotations, more string
		addrs                                         []string
	}{
		{"masquerade", "[{name: default, masquerade: {}}]", pods, "", "", dual},
		{"masquerade of IPv4", "[{name: default, masquerade: {}}]", pods, "", "", dual[:1]},
		{"masquerade of IPv6", "[{name: default, masquerade: {}}]", pods, "", "", dual[1:]},
		{
			"masquerade of a pod with one address", "[{name: default, masquerade: {}}]", pods, "", queues,
			[]string{"10.244.0.10/32"},
		},
		{"masquerade with ports", ports, pods, "", "", dual},
		{"masquerade with ranges", ranges, pods, "", "", dual},
		{"masquerade beside Istio", "[{name: default, masquerade: {}}]", pods, istio, "", dual[:1]},
		{"masquerade with ports beside Istio", ports, pods, istio, "", dual[:1]},
		{"masquerade of IPv6 with ranges beside Istio", ranges, pods, istio, "", dual},
		{
			"masquerade that migrates by sockets", "[{name: default, masquerade: {}}]", pods,
			`kubevirt.io/migrationTransportUnix: ""`, "", dual,
		},
		{
			"masquerade with subnets of its own", "[{name: default, masquerade: {}}]",
			"[{name: default, pod: {vmNetworkCIDR: 10.9.0.0/16, vmIPv6NetworkCIDR: 'fd77::/64'}}]", "", "", dual,
		},
		{"bridge", "[{name: default, bridge: {}}]", pods, "", "", dual},
		{
			"bridge of a pod with one address", "[{name: default, bridge: {}, model: e1000}]", pods, "", queues,
			[]string{"10.244.0.10/32"},
		},
		{
			"bridge with a hardware address", "[{name: default, bridge: {}, macAddress: '02:00:00:00:00:07'}]", pods, "",
			"", dual[:1],
		},
		{"managedTap", "[{name: default, binding: {name: managed}}]", pods, "", "", dual[:1]},
		{"two bridges", fmt.Sprintf(both, "bridge"), second, "", "", dual[:1]},
		{"masquerade and bridge", fmt.Sprintf(both, "masquerade"), second, "", "", dual[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := writeVMI(t, c.interfaces, c.networks, c.annotations, c.more)
			kubevirt, weft := newPod(t, c.addrs...), newPod(t, c.addrs...)
			if c.networks == second {
				kubevirt.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
				weft.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
			}
			must(t, program("kubevirt-net"), "phase1", file, itoa(kubevirt.pid))
			must(t, program("weft"), "vm", "phase1", "--agent", "", "--binding", "managed=managedTap", "--netns", weft.netns,
				"--state-dir", t.TempDir(), file)
			want, got := kubevirt.state(t), weft.state(t)
			want.Rules = slices.DeleteFunc(want.Rules, loopbackRules)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-KubeVirt +weft):\n%s", d)
			}
		})
	}
}

// blue is KubeVirt's name for the pod's link of the network blue.
const blue = "pod16477688c0e"
