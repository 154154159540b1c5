// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// TestAdopted: policies are enforced on an interface that Calico created for a pod with a reserved address, from when
// the reservation is known until the interface is deleted; a restarted agent without reservations keeps enforcing. An
// interface without a reservation is reported.
func TestAdopted(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	store := t.TempDir()
	manifest := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(store+"/"+name+".yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const pool = "{apiVersion: weft.dev/v1alpha1, kind: AddressPool, metadata: {name: p}, spec: {assignmentMode: Automatic, regions: [{cidr: 10.77.0.0/24, blockSize: 28}]%s}}"
	manifest("ns", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	manifest(
		"node",
		"{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}}",
	)
	manifest(
		"pod",
		"{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: shop, uid: uid-db}, spec: {nodeName: n1}, status: {podIP: 10.77.0.5}}",
	)
	manifest(
		"machine",
		"{apiVersion: v1, kind: Pod, metadata: {name: virt-launcher-vm-x, namespace: shop, uid: uid-vm}, spec: {nodeName: n1}, status: {podIP: 10.77.0.6}}",
	)
	manifest(
		"policy",
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress]}}",
	)
	manifest(
		"pool",
		fmt.Sprintf(
			pool,
			", reserved: [{address: 10.77.0.5, for: shop/db, containerID: c1, ifName: eth0, by: calico}, {address: 10.77.0.6, for: machine shop/vm, by: calico}]",
		),
	)
	link := func(pod string) string {
		return plugin.CalicoHostName(model.Request{
			ContainerID: "c1", IfName: "eth0", Origin: &model.Origin{Pod: model.PodRef{Namespace: "shop", Name: pod}},
		})
	}
	mine, vmPod := link("db"), link("virt-launcher-vm-x")
	for i, name := range []string{mine, vmPod, "calistrange"} {
		nettest.Run(t, w.node, "ip", "link", "add", name, "type", "veth", "peer", "name", fmt.Sprint("pod", i))
	}
	w.args = []string{"--store-dir", store, "--config", w.path("weft.yaml")}
	w.configure("addresses: pools")
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within a minute: %s\n%s", what, w.log())
			}
		}
	}
	enforced := func(name string) bool {
		out, _ := nettest.Try(w.node, "nft", "list", "table", "inet", "weft-policy")
		return strings.Contains(out, `"`+name+`"`)
	}
	w.start()
	until("policy holds for a pod and a machine", func() bool { return enforced(mine) && enforced(vmPod) })
	until("a word about calistrange", func() bool { return strings.Contains(w.log(), "calistrange") })
	if enforced("calistrange") {
		t.Error("policy holds for an interface of nobody's")
	}
	w.kill()
	nettest.Run(t, w.node, "nft", "delete", "table", "inet", "weft-policy")
	manifest("pool", fmt.Sprintf(pool, ""))
	w.start()
	until("policy holds for "+mine+" again", func() bool { return enforced(mine) })
	nettest.Run(t, w.node, "ip", "link", "del", mine)
	until("nothing is said of an interface that has gone", func() bool { return !enforced(mine) })
}
