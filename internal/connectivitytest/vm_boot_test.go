// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// The bindings are those of KubeVirt's object: its own, unless bridge is forbidden, and registered plugins that serve the
// pod network. Of those that do not, a VM would not start.
func TestRegistered(t *testing.T) {
	for spec, want := range map[string]string{
		`{}`: "bridge masquerade",
		`{"configuration": {"network": {"permitBridgeInterfaceOnPodNetwork": false}}}`: "masquerade",
		`{"configuration": {"network": {"binding": {"weft-direct": {"networkAttachmentDefinition": "default/weft-direct", "domainAttachmentType": "tap"}, "slirp": {"sidecarImage": "x"}, "macvtap": {"domainAttachmentType": "tap"}}}}}`: "bridge masquerade slirp weft-direct, not macvtap",
	} {
		names, others, err := registered(store.Object{Raw: json.RawMessage(`{"spec": ` + spec + `}`)})
		slices.Sort(names)
		got := strings.Join(names, " ")
		if len(others) > 0 {
			got += ", not " + strings.Join(others, " ")
		}
		if err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", spec, got, err, want)
		}
	}
	if _, _, err := registered(store.Object{Raw: json.RawMessage(`{"spec": 7}`)}); err == nil {
		t.Error("an object that cannot be read has bindings")
	}
}

// testedCluster is a cluster in which nothing is asked.
type testedCluster struct {
	Cluster
	lab bool
}

func (c testedCluster) Lab() bool { return c.lab }

// KubeVirt boots the image, on both nodes of the test, so that the VM can migrate; a lab boots its own, on one node.
func TestVMManifest(t *testing.T) {
	for _, lab := range []bool{true, false} {
		s := &Suite{Options: Options{VMImage: "example.org/guest:v1"}, fixture: newFixture(testedCluster{lab: lab}, NewName())}
		s.nodes = []string{"node-a", "node-b"}
		for name, binding := range bindings("masquerade", "weft-direct") {
			b, err := json.Marshal(s.vmManifest(name, 1, binding))
			if err != nil {
				t.Fatal(err)
			}
			for text, there := range map[string]bool{
				`"nodeSelector":{"kubernetes.io/hostname":"node-b"}`: lab, `"values":["node-a","node-b"]`: !lab,
				`"image":"example.org/guest:v1"`: !lab, `weft.answer=7007`: !lab,
				`{"masquerade":{},"name":"default"}`:                  name == "masquerade",
				`{"binding":{"name":"weft-direct"},"name":"default"}`: name == "weft-direct",
			} {
				if strings.Contains(string(b), text) != there {
					t.Errorf("lab %v, %s: %s: want %v\n%s", lab, name, text, there, b)
				}
			}
		}
	}
}

// TestConnect: a guest is asked only by addresses that it can answer: KubeVirt advertises no route to one behind masquerade.
func TestConnect(t *testing.T) {
	both := []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00::2")}
	for _, one := range []struct {
		nic, binding string
		lab          bool
		addrs        int
	}{
		{`{"masquerade": {}}`, "masquerade", false, 1},
		{`{"masquerade": {}}`, "masquerade", true, 2},
		{`{"bridge": {}}`, "bridge", true, 1},
		{`{"binding": {"name": "weft-direct"}}`, "weft-direct", false, 2},
	} {
		var fields vmFields
		text := `{"spec": {"domain": {"devices": {"interfaces": [` + one.nic + `]}}}}`
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		v := vm{Pod: model.Pod{IPs: both}}
		if fields.connect(&v, one.lab); v.binding != one.binding || len(v.IPs) != one.addrs || v.why != "" {
			t.Errorf("%s, lab %v: %s by %s (%s), want %s by %d addresses", one.nic, one.lab, v.binding, v.IPs, v.why, one.binding, one.addrs)
		}
	}
}
