// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// made is a foreign plugin that creates an interface by a command, and whose result has only its name.
func made(command string) string {
	return `if [ "$CNI_COMMAND" = ADD ]; then
	` + command + ` || exit 1
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'"$CNI_IFNAME"'","sandbox":"'"$CNI_NETNS"'"}]}'
else
	ip link del end 2>/dev/null; ip link del under 2>/dev/null; ip link del other 2>/dev/null
fi
exit 0`
}

// TestMacvtapIsAdmitted: policy is enforced at a macvtap of weft's when it exists and before the ADD ends, as the record
// says afterwards.
func TestMacvtapIsAdmitted(t *testing.T) {
	nettest.Need(t, "macvtap")
	nettest.NeedDevices(t)
	n, w := newGuarded(t)
	n.cfg.Planners = plugin.InAgent()
	n.Attacher = attach.New(n.cfg)
	n.uplink()
	id, ns := n.pod()
	job := ofPod(n.job(n.list(`{"type":"weft-macvtap","deviceID":"tap1879048201-bridge-ens5"}`), id, ns))
	n.add(job)
	if got := w.all(); !strings.HasPrefix(got, "admit shop/web eth0 host=false []") || strings.Count(got, "admit") != 1 {
		t.Errorf("the enforcer was called with %q", got)
	}
	got := w.last["eth0"]
	rec, _, err := n.ledger.Get(job.Request.Key())
	if err != nil {
		t.Fatal(err)
	}
	if again, ok := rec.Endpoint(); !got.Tap || !ok || !again.Equal(got) {
		t.Errorf("the record has %+v, the enforcer got %+v", again, got)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
}

// TestInspect: what foreign plugins have made is looked at before the ADD ends, and the record says it, so that policies
// of a guest stand where its packets pass.
func TestInspect(t *testing.T) {
	nettest.Need(t, "macvtap")
	const pair = `ip link add end type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"`
	for name, tt := range map[string]struct {
		command string
		device  string
		want    model.WorkloadEndpoint
	}{
		"a router's end": {command: pair, want: model.WorkloadEndpoint{HostLink: "end", HostEnd: model.HostEndForeign}},
		"a port": {
			command: pair + ` && ip link add other type bridge && ip link set end master other`,
			want:    model.WorkloadEndpoint{HostLink: "end", HostEnd: model.HostEndPort},
		},
		"a port of something else": {
			command: pair + ` && ip link add other type vrf table 77 && ip link set end master other`,
		},
		"a macvtap": {
			command: `ip link add under type veth peer name other && ip link add link under name end type macvtap mode bridge && ip link set end netns "$CNI_NETNS" name "$CNI_IFNAME"`,
			want:    model.WorkloadEndpoint{Tap: true},
		},
		"a device":          {command: "true", device: "0000:03:02.1", want: model.WorkloadEndpoint{Device: "0000:03:02.1"}},
		"a device's link":   {command: `ip link add "$CNI_IFNAME" netns "$CNI_NETNS" type bridge`, device: "0000:03:02.1"},
		"another's device":  {command: "true", device: "vendor.com/device0"},
		"nothing to see":    {command: "true"},
		"nothing on a node": {command: `ip link add "$CNI_IFNAME" netns "$CNI_NETNS" type bridge`},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a port of something else" {
				nettest.Need(t, "vrf")
			}
			n, w := newGuarded(t)
			n.plugin("strange", made(tt.command))
			id, ns := n.pod()
			job := ofPod(n.job(n.list(`{"type":"strange"}`), id, ns))
			job.Request.Origin = &model.Origin{
				Pod: model.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Network: "shop/fast", Device: tt.device,
			}
			n.add(job)
			got := w.last["eth0"]
			if got.HostLink != tt.want.HostLink || got.HostEnd != tt.want.HostEnd || got.Tap != tt.want.Tap ||
				got.Device != tt.want.Device {
				t.Errorf("guarded as %+v", got)
			}
			rec, _, err := n.ledger.Get(job.Request.Key())
			if err != nil {
				t.Fatal(err)
			}
			if again, ok := rec.Endpoint(); !ok || !again.Equal(got) {
				t.Errorf("the record says %+v, the guard was told %+v", again, got)
			}
			if err := n.Del(t.Context(), job); err != nil {
				t.Error(err)
			}
		})
	}
}
