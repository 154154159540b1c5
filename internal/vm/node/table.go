// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/weft-net/weft/internal/vm/phase1"
)

// note remembers what a machine has in its pod now.
func (m *Machines) note(r phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(r)
	if len(r.Networks) == 0 {
		return
	}
	m.in[r.Container] = append(m.in[r.Container], r)
	if watched(r) && !m.watching && m.ctx.Err() == nil {
		m.watching = true
		m.group.Go(func() { m.watch(m.ctx) })
	}
}

func (m *Machines) drop(r phase1.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(r)
}

// forget is drop for who holds m.mu.
func (m *Machines) forget(r phase1.Record) {
	rest := slices.DeleteFunc(slices.Clone(m.in[r.Container]), func(o phase1.Record) bool {
		return o.Machine == r.Machine && o.In == r.In
	})
	if len(rest) == 0 {
		delete(m.in, r.Container)
		return
	}
	m.in[r.Container] = rest
}

// of are the machines in a pod.
func (m *Machines) of(container string) []phase1.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.in[container]
}

// Count tells how many machines there are, and how many of their networks.
func (m *Machines) Count() (machines, networks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, records := range m.in {
		machines += len(records)
		for _, r := range records {
			networks += len(r.Networks)
		}
	}
	return machines, networks
}
