// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestVMPolicy: policies are enforced on a guest on a bridge even if the pod was not announced as a VM's: from
// before the guest is connected, and by a restarted agent.
func TestVMPolicy(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.NeedBridgeNetfilter(t)
	nettest.Need(t, "tap")
	w := newWorld(t)
	store := t.TempDir()
	for name, text := range map[string]string{
		"ns":     "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}",
		"pod":    "{apiVersion: v1, kind: Pod, metadata: {name: vm, namespace: shop, uid: uid-vm, labels: {app: vm}}, spec: {nodeName: n1}}",
		"policy": "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress, Egress]}}",
	} {
		if err := os.WriteFile(store+"/"+name+".yaml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.args = []string{"--store-dir", store}
	w.start()
	list := w.list("1.1.0", w.networks()["bridge"])
	ns, _ := w.shopPod(list, "vm", nettest.NS(t, "vm"))
	enforced := func() (atPort, inPod bool) {
		out, _ := nettest.Try(w.node, "nft", "list", "table", "bridge", "weft-policy")
		return strings.Contains(out, `"veth`), strings.Contains(nettest.Run(t, ns, "nft", "list", "ruleset"), "weft-policy")
	}
	if atPort, inPod := enforced(); !atPort || inPod {
		t.Errorf("a pod is judged at its port: %t, in the pod: %t", atPort, inPod)
	}
	w.startVM(ns, vmInput(model.VMBridge))
	if atPort, inPod := enforced(); !atPort || inPod {
		t.Errorf("a guest is judged at its port: %t, in the pod: %t\n%s", atPort, inPod, w.log())
	}
	w.kill()
	nettest.Run(t, w.node, "nft", "delete", "table", "bridge", "weft-policy")
	w.start()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if atPort, _ := enforced(); atPort {
			w.stopVM(ns)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("an agent that starts does not judge the guest\n%s", w.log())
}
