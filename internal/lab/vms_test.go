// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/vm/launch"
)

const vmText = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: vm1, namespace: far}\n" +
	"spec:\n  nodeSelector: {kubernetes.io/hostname: node2}\n  domain: {devices: {interfaces: [{name: default, masquerade: {}}]}}\n  networks: [{name: default, pod: {}}]\n"

// TestVMsGetPods: a VM of the manifests gets a pod on the node that it selects, unless VMs are skipped.
func TestVMsGetPods(t *testing.T) {
	from := manifests(t, map[string]string{"vm.yaml": vmText, "a.yaml": podText("a", "")})
	pods, vms, others, err := Up{
		Dir: Dir(t.TempDir()), From: []string{from},
	}.fillStore(context.Background(), testLayout(t))
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]string{}
	for _, p := range pods {
		where[p.Namespace+"/"+p.Name] = p.Node
	}
	if d := cmp.Diff(map[string]string{"default/a": "node1", "far/virt-launcher-vm1": "node2"}, where); d != "" {
		t.Error(d)
	}
	if len(vms) != 1 || vms[0].node != "node2" || vms[0].VM.Key() != "far/vm1" || len(others) > 0 {
		t.Errorf("%+v %v", vms, others)
	}
	pods, vms, others, err = Up{
		Dir: Dir(t.TempDir()), From: []string{from}, NoVMs: true,
	}.fillStore(context.Background(), testLayout(t))
	if err != nil || len(pods) != 1 || len(vms)+len(others) > 0 {
		t.Errorf("%v %v %v %v", pods, vms, others, err)
	}
}

// TestInvalidVM: an error contains the path of the field, and nothing is created.
func TestInvalidVM(t *testing.T) {
	from := manifests(t, map[string]string{"vm.yaml": strings.Replace(vmText, "masquerade", "slirp", 1)})
	_, _, _, err := Up{Dir: Dir(t.TempDir()), From: []string{from}}.fillStore(context.Background(), testLayout(t))
	if err == nil || !strings.HasPrefix(err.Error(), "VM vm1: spec.domain.devices.interfaces[0].slirp: ") {
		t.Errorf("%v", err)
	}
}

// TestConnectivityOfVMs: a VM is probed instead of its pod, at the ports that reach the guest.
func TestConnectivityOfVMs(t *testing.T) {
	st := Status{VMs: []launch.Status{{Pod: "far/virt-launcher-vm1"}}}
	if !st.isVMPod(PodStatus{Namespace: "far", Name: "virt-launcher-vm1"}) ||
		st.isVMPod(PodStatus{Namespace: "far", Name: "a"}) {
		t.Error("the pod of a VM is not recognized")
	}
	at := manifests(t, map[string]string{
		"m.yaml": strings.Replace(vmText, "masquerade: {}", "masquerade: {}, ports: [{port: 80}, {port: 81}]", 1),
		"n.yaml": vmText,
	})
	got, err := guestPorts(launch.Status{Dir: at + "/m"})
	if d := cmp.Diff(map[string]uint16{"tcp": 80}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	got, err = guestPorts(launch.Status{Dir: at + "/n"})
	if d := cmp.Diff(map[string]uint16{"tcp": guestPort, "udp": guestPort}, got); d != "" || err != nil {
		t.Error(d, err)
	}
}
