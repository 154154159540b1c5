// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"errors"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCheck: an object that vanishes before phase 2 is an error that names its field; the VM can still be undone, and
// leaves nothing.
func TestCheck(t *testing.T) {
	const nic = `spec.domain.devices.interfaces[0]: network "default" has changed in the pod: `
	for name, c := range map[string]struct {
		binding model.VMBinding
		spoil   func(*world)
		want    string
	}{
		"the pod's link": {
			model.VMMasquerade, func(w *world) { w.ip(w.far, "link del wire") }, nic + "the pod has no link eth0",
		},
		"the link on the wire": {model.VMBridge, func(w *world) { w.ip(w.far, "link del wire") }, nic},
		"the tap": {
			model.VMBridge, func(w *world) { w.ip(w.pod, "link del tap0") }, nic + "the pod has no link tap0",
		},
		"the bridge": {model.VMMasquerade, func(w *world) { w.ip(w.pod, "link del k6t-eth0") }, nic},
		"the rules": {
			model.VMMasquerade, func(w *world) { nettest.Run(w.t, w.pod, "nft", "flush", "ruleset") }, nic,
		},
		"the guest's tap": {
			model.VMDirect, func(w *world) { w.ip(w.pod, "link del tap0") }, nic + "the pod has no link tap0",
		},
		"the guest's uplink": {
			model.VMDirect, func(w *world) { w.ip(w.far, "link del wire") }, nic + "the pod has no link eth0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.flannel()
			r := w.start(testInput(c.binding))
			if err := r.Check(t.Context(), w.pod); err != nil {
				t.Fatal(err)
			}
			c.spoil(w)
			err := r.Check(t.Context(), w.pod)
			var fault *model.Error
			if !errors.As(err, &fault) || fault.Code != model.CodeInvalidEnv || !strings.HasPrefix(fault.Msg, c.want) {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
			w.undo()
			if out := nettest.Run(t, w.pod, "ip", "-br", "link"); strings.Contains(out, "tap") || strings.Contains(out, "k6t") ||
				strings.Contains(out, "nic") {
				t.Errorf("left: %s", out)
			}
			if out := nettest.Run(t, w.pod, "nft", "list", "ruleset"); out != "" {
				t.Errorf("left: %s", out)
			}
		})
	}
}
