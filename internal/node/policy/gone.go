// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/weft-net/weft/internal/plan/policy"
)

// closeWithNamespace has the sockets of a place closed when its namespace is deleted, which a runtime may do without a
// DEL. The caller has the turn of the pods' tables.
func (pt *podTables) closeWithNamespace(p policy.EnforcementPoint, at *place, path string, id uint64) {
	forget := pt.cfg.Deletions.Add(path, id, func() { pt.closeDeleted(p, at, id) })
	pt.desired.mu.Lock()
	at.unwatchNamespace = forget
	pt.desired.mu.Unlock()
}

// closeDeleted closes the sockets that a place has in a namespace that was deleted. The place is kept: a later write finds
// no namespace and drops it, or the one that replaces it.
func (pt *podTables) closeDeleted(p policy.EnforcementPoint, of *place, id uint64) {
	pt.podWrites.lock()
	defer pt.podWrites.unlock()
	pt.desired.mu.Lock()
	var was open
	if at := pt.places[p]; at == of && at.ns != nil {
		if is, err := at.ns.ID(); err == nil && is == id {
			was = at.takeLocked()
		}
	}
	pt.desired.mu.Unlock()
	was.close()
}
