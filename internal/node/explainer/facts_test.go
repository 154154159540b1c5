// SPDX-License-Identifier: Apache-2.0

package explainer

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/state"
)

// The node's ports that lead to a pod are those of the attachment's capability portMappings.
func TestHostPorts(t *testing.T) {
	mapped := `{"type": "portmap", "runtimeConfig": {"portMappings": [
		{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"},
		{"hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": "192.0.2.1"}]}}`
	got := hostPorts(model.Network{Plugins: []model.PluginConf{
		{Type: "bridge", Raw: json.RawMessage(`{"type": "bridge"}`)}, {Type: "portmap", Raw: json.RawMessage(mapped)},
	}})
	want := []explain.HostPort{
		{Protocol: model.TCP, Port: 8080, To: 80},
		{Protocol: model.UDP, Port: 53, To: 5353, Addr: netip.MustParseAddr("192.0.2.1")},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A VM's tap is known by the record of the VM in its pod, or by the join that the attachment itself made.
func TestTaps(t *testing.T) {
	direct := attach.Record{
		Request: model.Request{ContainerID: "c1"},
		Acts:    []attach.Act{{Fragment: &state.Fragment{Pod: state.Space{Joins: []state.Join{{Tap: "tap1", Link: "net1"}}}}}},
	}
	vm := attach.Record{VM: &attach.VM{Container: "c2"}, Acts: []attach.Act{
		{},
		{Interface: &attach.VMInterface{PodLink: "eth0", Device: model.VMDevice{Target: "tap0"}}},
		{Interface: &attach.VMInterface{PodLink: "net1", Device: model.VMDevice{Target: "macvtap0", OnNode: true}}},
	}}
	got := tapsOf([]attach.Record{direct, vm})
	if len(got) != 2 || got[podLink{"c1", "net1"}] != "tap1" || got[podLink{"c2", "eth0"}] != "tap0" {
		t.Errorf("%+v", got)
	}
}
