// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// optioned is a bridge with options that need netfilter, masqueraded by the node's iptables.
func (w *world) optioned() string {
	return fmt.Sprintf(`{"type":"bridge","bridge":"br0","isDefaultGateway":true,"ipMasq":true,"ipMasqBackend":"iptables",
		"macspoofchk":true,"portIsolation":true,"hairpinMode":true,"ipam":%s}`, w.ipam("10.9.0.0/16"))
}

// warm makes iptables create the base chains that it never removes.
func (w *world) warm() {
	w.t.Helper()
	if out, err := nettest.Try(w.node, "iptables", "-t", "nat", "-A", "POSTROUTING", "-j", "ACCEPT"); err != nil {
		nettest.SkipMissing(w.t, "iptables does not work here: "+out)
	}
	nettest.Run(w.t, w.node, "iptables", "-t", "nat", "-D", "POSTROUTING", "-j", "ACCEPT")
}

// TestBridgeOptions executes every verb, and leaves nothing.
func TestBridgeOptions(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.warm()
	w.start()
	before := w.host()
	list, ns := w.list("1.1.0", w.optioned()), nettest.NS(t, "pod")
	if err := w.cni.GetStatusNetworkList(w.ctx(), list); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatalf("ADD: %v\n%s", err, w.log())
	}
	rules := w.host() + nettest.Run(t, w.node, "iptables-save")
	for _, want := range []string{`name: \"net\" id: \"c1\"`, "table bridge weft_spoof", `comment "weft:net/c1/eth0"`} {
		if !strings.Contains(rules, want) {
			t.Errorf("no %s in\n%s", want, rules)
		}
	}
	if err := w.check(list, "c1", ns); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	nettest.Run(t, w.node, "nft", "flush", "set", "bridge", "weft_spoof",
		"sources") // deleted set elements cause no notification
	if err := w.check(list, "c1", ns); code(err) != 102 ||
		!strings.Contains(err.Error(), "weft_spoof: set sources element") {
		t.Errorf("CHECK without the spoof check's element: %v", err)
	}
	other := nettest.NS(t, "other")
	if _, err := w.add(list, "c2", other); err != nil {
		t.Fatalf("ADD: %v\n%s", err, w.log())
	}
	w.gc(list, "c2")
	if rules := nettest.Run(t, w.node, "iptables-save"); strings.Contains(rules, `id: \"c1\"`) ||
		!strings.Contains(rules, `id: \"c2\"`) {
		t.Errorf("after GC:\n%s", rules)
	}
	for range 2 {
		if err := w.del(list, "c2", other); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	_ = os.RemoveAll(w.path("cache"))
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

// TestFlushedChainsAreRepaired: another program flushes the table with the pod's masquerading.
func TestFlushedChainsAreRepaired(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.warm()
	w.start()
	list, ns := w.list("1.1.0", w.optioned()), nettest.NS(t, "pod")
	if _, err := w.add(list, "c1", ns); err != nil {
		t.Fatalf("ADD: %v\n%s", err, w.log())
	}
	w.repaired("flush", func() { nettest.Run(t, w.node, "nft", "flush", "ruleset") }, func() bool {
		return w.check(list, "c1", ns) == nil
	})
}

// TestTakenOverFromTheReference: pods of the reference bridge are deleted by the agent, with and without namespace, and
// by its GC.
func TestTakenOverFromTheReference(t *testing.T) {
	nettest.EndToEnd(t)
	bin := os.Getenv("WEFT_PEER_BIN_DIR")
	if bin == "" {
		nettest.SkipMissing(t, "WEFT_PEER_BIN_DIR is not set: nothing is taken over from the reference plugins")
	}
	w := newWorld(t)
	w.warm()
	w.start()
	// the reference fails where IPAM returns the default route too
	delegate := strings.Replace(w.optioned(), "isDefaultGateway", "isGateway", 1)
	list := w.list("1.1.0", delegate)
	spaces := map[string]*netns.NS{}
	for _, id := range []string{"whole", "without", "collected", "kept"} {
		spaces[id] = nettest.NS(t, id)
		conf := strings.Replace(delegate, "{", `{"cniVersion":"1.0.0","name":"net",`, 1)
		cmd := exec.Command(filepath.Join(bin, "bridge"))
		cmd.Stdin = strings.NewReader(conf)
		cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+id, "CNI_IFNAME=eth0",
			"CNI_NETNS="+spaces[id].Path(), "CNI_PATH="+bin)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := w.node.Do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("reference ADD: %v\n%s", err, &out)
		}
	}
	left := func(id string) bool {
		rules := nettest.Run(t, w.node, "iptables-save") + nettest.Run(t, w.node, "nft", "list", "table", "bridge", "nat")
		return strings.Contains(rules, `id: \"`+id+`\"`) || strings.Contains(rules, "cni-br-iface-"+id) ||
			strings.Contains(rules, "macspoofchk-"+id)
	}
	if err := w.del(list, "whole", spaces["whole"]); err != nil {
		t.Errorf("DEL: %v", err)
	}
	nettest.Run(t, spaces["without"], "ip", "link", "del", "eth0")
	rt := runtimeConf("without", spaces["without"])
	rt.NetNS = ""
	if err := w.cni.DelNetworkList(w.ctx(), list, rt); err != nil {
		t.Errorf("DEL without namespace: %v", err)
	}
	nettest.Run(t, spaces["collected"], "ip", "link", "del", "eth0")
	w.gc(list, "kept")
	for id, want := range map[string]bool{"whole": false, "without": false, "collected": false, "kept": true} {
		if left(id) != want {
			t.Errorf("rules of %s: %v, want %v\n%s", id, !want, want, nettest.Run(t, w.node, "nft", "list", "ruleset"))
		}
	}
	nettest.Run(t, spaces["kept"], "ping", "-c1", "-W20", "10.9.0.1")
}
