// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// stopServingWhenDeleted closes what is open in a pod for weft-guest when the pod's namespace is deleted, which lives on
// otherwise until the DEL; unwatch ends that. The namespace is watched at the runtime's path, or else at that of the VM's
// call, if it is there in this process's mounts.
func (m *Registry) stopServingWhenDeleted(record phase1.Record, ns *netns.NS) (unwatch func()) {
	id, err := ns.ID()
	if err != nil {
		return func() {}
	}
	for _, path := range append(m.runtimePaths(record), record.Netns) {
		if netns.At(path, id) {
			return m.cfg.Deletions.Add(path, id, func() { m.local.StopServing(record.VM, record.PodID) })
		}
	}
	return func() {}
}
