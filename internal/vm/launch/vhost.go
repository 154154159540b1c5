// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// vhost opens vhost-net for a card, once for each queue; none where the node has none that can be used, where the card
// is none of virtio's, and where the processor is emulated: QEMU would not see what the kernel writes into the guest's
// memory. A machine runs without it as well.
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
			l.Log.Warn("QEMU moves the guest's packets itself", "interface", d.Name, "err", err)
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
