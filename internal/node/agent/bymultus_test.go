// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/weft-net/weft/internal/nettest"
)

// TestNetworkOfMultus: Multus itself is the node's network and executes weft for the first network of pods. weft leaves the
// others that a pod selects and its network status to Multus, also when the annotation changes and after another agent has
// started: Multus fails with "interface name net1 already exists" where weft has created it.
func TestNetworkOfMultus(t *testing.T) {
	p := newPodnets(t)
	p.usual()
	p.start()
	p.pod("a", "wire1")
	p.pod("b", "wire1")
	ns, other := nettest.NS(t, "a"), nettest.NS(t, "b")
	list, conf := p.runtimes("a", ns)
	// As multus-cni v4.3.0 does: its own arguments, and then those of the runtime.
	conf.Args = append([][2]string{
		{"IgnoreUnknown", "true"}, {"K8S_POD_NAMESPACE", "default"}, {"K8S_POD_NAME", "a"},
		{"K8S_POD_INFRA_CONTAINER_ID", "id-a"}, {"K8S_POD_UID", ""},
	}, conf.Args...)
	links := func(when string) {
		t.Helper()
		if all := nettest.Run(t, ns, "ip", "-br", "link"); !strings.Contains(all, "eth0") || strings.Contains(all, "net1") {
			t.Fatalf("%s the pod has %s, want eth0 without net1", when, all)
		}
	}
	if _, err := p.cni.AddNetworkList(p.ctx(), list, conf); err != nil {
		t.Fatal(err, p.log())
	}
	links("after ADD")
	p.pod("a", "wire1,wire2")
	p.kill()
	p.start()
	// What the agent does for another pod, it does after it has seen the first one.
	if err := p.addPod("b", other); err != nil {
		t.Fatal(err, p.log())
	}
	status := func(pod string) bool {
		b, err := os.ReadFile(filepath.Join(p.store, "pod-"+pod+".yaml"))
		return err == nil && strings.Contains(string(b), "network-status")
	}
	for end := time.Now().Add(time.Minute); !status("b"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the other pod has no network status", p.log())
		}
	}
	links("after its annotation has changed")
	if status("a") {
		t.Error("weft has written the network status, which is Multus's")
	}
	if err := p.cni.CheckNetworkList(p.ctx(), list, conf); err != nil {
		t.Error("CHECK:", err)
	}
	// Multus' cache has no keys that Multus does not know. The runtime repeats a DEL.
	cached, err := libcni.NetworkConfFromBytes(
		fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"weft-cni","socket":%q,"ipam":{}}]}`, p.socket()))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := p.cni.DelNetworkList(p.ctx(), cached, conf); err != nil {
			t.Errorf("DEL %d: %v", i+1, err)
		}
	}
	if all := p.lacks(func() string { return nettest.Run(t, ns, "ip", "-br", "link") }, "eth0"); all != "" {
		t.Errorf("after DEL the pod has %s", all)
	}
}
