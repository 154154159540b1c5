// SPDX-License-Identifier: Apache-2.0

package launch_test

import (
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
)

// TestVhostNet: QEMU gets a vhost-net descriptor per queue of a virtio device, and none with an emulated CPU.
func TestVhostNet(t *testing.T) {
	w := newWorld(t)
	w.flannel()
	for _, c := range []struct {
		accel, kind, device string
		queues              int
		want                string
	}{
		{"kvm", "virtio", "/dev/null", 1, ",vhost=on,vhostfd="},
		{"kvm", "virtio", "/dev/null", 2, ",vhost=on,vhostfds="},
		{"kvm", "e1000", "/dev/null", 1, ",vhost=off"},
		{"kvm", "virtio", "/nowhere", 1, ",vhost=off"},
		{"tcg", "virtio", "/dev/null", 1, ",vhost=off"},
	} {
		in := w.input(model.VMMasquerade)
		in.VM.Interfaces[0].Model, in.VM.Queues = c.kind, c.queues
		conf := w.config(in)
		conf.QEMU.Program, conf.QEMU.Accel, conf.Vhost = "echo", c.accel, c.device // it prints its arguments, and ends
		err := conf.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
