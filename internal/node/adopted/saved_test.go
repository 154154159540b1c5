// SPDX-License-Identifier: Apache-2.0

package adopted

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// earlier is a file of an agent from before model.WorkloadEndpoint.
const earlier = `{"boot":"b1","interfaces":[{"Key":{"network":"calico","containerID":"c1","ifName":"eth0"},"Pod":{"namespace":"shop","name":"web"},
"Network":"","IfName":"eth0","HostLink":"cali0d7763386da","Port":"","Machine":false,"Router":"","Tap":false,"Device":"","Addrs":["10.244.0.9","fd00::9"],
"Standby":false,"Netns":null,"Path":"","NetnsID":0}]}`

// TestSaved: the interfaces in an earlier agent's file are enforced as routed ones, and an earlier agent can read what
// this one writes.
func TestSaved(t *testing.T) {
	dir := t.TempDir()
	file := path(dir)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	if e := Open(Config{StateDir: dir, Boot: "b2"}); len(e.All()) != 0 {
		t.Errorf("after another boot: %+v", e.All())
	}
	e := Open(Config{StateDir: dir, Boot: "b1"})
	want := model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: "calico", ContainerID: "c1", IfName: "eth0"},
		Pod:        model.PodRef{Namespace: "shop", Name: "web"},
		IfName:     "eth0", HostLink: "cali0d7763386da", HostEnd: model.HostEndRouted,
		Addrs: []netip.Addr{netip.MustParseAddr("10.244.0.9"), netip.MustParseAddr("fd00::9")},
	}
	if all := e.All(); len(all) != 1 || !all[0].Equal(want) || all[0].Point() != model.PointHost {
		t.Fatalf("read %+v", all)
	}
	if err := e.save(); err != nil {
		t.Fatal(err)
	}
	again := Open(Config{StateDir: dir, Boot: "b1"})
	if all := again.All(); len(all) != 1 || !all[0].Equal(want) {
		t.Errorf("read again: %+v", all)
	}
	if names, err := Names(dir); err != nil || !slices.Equal(names, []string{"cali0d7763386da"}) {
		t.Errorf("Names() = %q, %v", names, err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var is struct{ Interfaces []map[string]json.RawMessage }
	if err := json.Unmarshal(b, &is); err != nil || len(is.Interfaces) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	for field, value := range is.Interfaces[0] {
		if !strings.Contains(earlier, `"`+field+`":`+string(value)) {
			t.Errorf("%s is written as %s, and was not before", field, value)
		}
	}
}
