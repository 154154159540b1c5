// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
)

// TestStatus: status.interfaces of running VMs, in two equal pods.
func TestStatus(t *testing.T) {
	if out, err := exec.Command(program("weft"), "vm", "image").CombinedOutput(); err != nil {
		t.Skipf("SKIP: no guest image can be built, so no VM runs: %s", out)
	}
	const second = "[{name: default, pod: {}}, {name: blue, multus: {networkName: blue}}]"
	for _, c := range []struct{ name, interfaces string }{
		{"masquerade", "[{name: default, masquerade: {}}, {name: blue, bridge: {}, state: down, model: e1000}]"},
		{"bridge", "[{name: blue, bridge: {}}, {name: default, bridge: {}}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := writeVMI(t, c.interfaces, second, "", "networkInterfaceMultiqueue: true, ")
			kubevirt, weft := newPod(t, "10.244.0.10/24", "fd00:244::10/64"), newPod(t, "10.244.0.10/24", "fd00:244::10/64")
			for _, p := range []pod{kubevirt, weft} {
				p.link(t, blue, "02:00:00:00:00:09", "10.7.0.5/24")
			}
			domain := filepath.Join(t.TempDir(), "domain.xml")
			if err := os.WriteFile(domain, []byte(kubevirt.kubevirt(t, file)), 0o644); err != nil {
				t.Fatal(err)
			}
			var want []v1.VirtualMachineInstanceNetworkInterface
			if err := json.Unmarshal([]byte(must(t, program("kubevirt-net"), "status", file, domain)), &want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, weft.runs(t, file)); d != "" {
				t.Errorf("status.interfaces (-KubeVirt +weft):\n%s", d)
			}
		})
	}
}

// runs runs a VM in the pod by weft, and returns its status.interfaces.
func (p pod) runs(t *testing.T, file string) []v1.VirtualMachineInstanceNetworkInterface {
	t.Helper()
	dir := t.TempDir()
	in := func(verb string, more ...string) []string {
		return append([]string{program("weft"), "vm", verb, "--dir", filepath.Join(dir, "m")}, more...)
	}
	t.Cleanup(func() { _, _ = try(in("stop", "shop/vm1")...) })
	must(
		t,
		in("run", "--detach", "--agent-socket", "", "--records-dir", filepath.Join(dir, "r"), "--state-dir",
			filepath.Join(dir, "s"),
			"--netns", p.netns, "--pod", "virt-launcher-vm1", file)...)
	var vmi v1.VirtualMachineInstance
	if err := json.Unmarshal([]byte(must(t, in("status", "-o", "json", "shop/vm1")...)), &vmi); err != nil {
		t.Fatal(err)
	}
	return vmi.Status.Interfaces
}
