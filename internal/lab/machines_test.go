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

// TestMachinesGetPods: a machine of the manifests is in a pod of its own on the node that it asks for, unless machines
// are left out.
func TestMachinesGetPods(t *testing.T) {
	from := manifests(t, map[string]string{"vm.yaml": vmText, "a.yaml": podText("a", "")})
	pods, machines, others, err := Up{
		Dir: Dir(t.TempDir()), From: []string{from},
	}.fill(context.Background(), testLayout(t))
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
	if len(machines) != 1 || machines[0].node != "node2" || machines[0].VM.Key() != "far/vm1" || len(others) > 0 {
		t.Errorf("%+v %v", machines, others)
	}
	pods, machines, others, err = Up{
		Dir: Dir(t.TempDir()), From: []string{from}, NoMachines: true,
	}.fill(context.Background(), testLayout(t))
	if err != nil || len(pods) != 1 || len(machines)+len(others) > 0 {
		t.Errorf("%v %v %v %v", pods, machines, others, err)
	}
}

// TestBadMachine: what is wrong is said with the path of its field, before anything is made.
func TestBadMachine(t *testing.T) {
	from := manifests(t, map[string]string{"vm.yaml": strings.Replace(vmText, "masquerade", "slirp", 1)})
	_, _, _, err := Up{Dir: Dir(t.TempDir()), From: []string{from}}.fill(context.Background(), testLayout(t))
	if err == nil || !strings.HasPrefix(err.Error(), "machine vm1: spec.domain.devices.interfaces[0].slirp: ") {
		t.Errorf("%v", err)
	}
}

// TestReachOfMachines: a guest stands for the pod around it, by the ports that lead to it.
func TestReachOfMachines(t *testing.T) {
	st := Status{Machines: []launch.Status{{Pod: "far/virt-launcher-vm1"}}}
	if !st.around(PodStatus{Namespace: "far", Name: "virt-launcher-vm1"}) ||
		st.around(PodStatus{Namespace: "far", Name: "a"}) {
		t.Error("the pod around a machine is not known")
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
