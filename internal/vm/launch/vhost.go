// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// vhost opens vhost-net for a network device, once per queue. It returns none if vhost-net does not work on the node,
// for a device that is not virtio, and with an emulated CPU: QEMU would not notice the kernel's writes to the guest's
// memory. A VM works without vhost, too.
func (l *launch) vhost(d model.VMDevice) []*os.File {
	if l.QEMU.Accel != "kvm" || !strings.HasPrefix(d.Model, "virtio") {
		return nil
	}
	path := l.Vhost
	if path == "" {
		path = phase1.VhostNet
		if _, ok := phase1.UsableVhost(); !ok {
			return nil
		}
	}
	var out []*os.File
	for range max(d.Queues, 1) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			l.Log.Warn("vhost-net cannot be opened; QEMU processes the guest's packets", "vm", l.key, "interface", d.Name, "err", err)
			closeAll(out)
			return nil
		}
		out = append(out, f)
	}
	return out
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
