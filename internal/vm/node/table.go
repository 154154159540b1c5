// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/weft-net/weft/internal/vm/phase1"
)

// put stores the record of a VM in its pod.
func (m *Registry) put(r phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(r)
	if len(r.Networks) == 0 {
		return
	}
	m.bySandbox[r.Container] = append(m.bySandbox[r.Container], r)
	if watched(r) && !m.watching && m.ctx.Err() == nil {
		m.watching = true
		m.group.Go(func() { m.watch(m.ctx) })
	}
}

func (m *Registry) remove(r phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removeLocked(r)
}

// removeLocked is remove for callers that hold m.mu.
func (m *Registry) removeLocked(r phase1.Record) {
	rest := slices.DeleteFunc(slices.Clone(m.bySandbox[r.Container]), func(o phase1.Record) bool {
		return o.VM == r.VM && o.PodID == r.PodID
	})
	if len(rest) == 0 {
		delete(m.bySandbox, r.Container)
		return
	}
	m.bySandbox[r.Container] = rest
}

// inSandbox returns the VMs in a pod.
func (m *Registry) inSandbox(container string) []phase1.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bySandbox[container]
}

// Count returns the number of VMs, and of their networks.
func (m *Registry) Count() (vms, networks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, records := range m.bySandbox {
		vms += len(records)
		for _, r := range records {
			networks += len(r.Networks)
		}
	}
	return vms, networks
}
