// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// Marked is a pod whose packets to the outside of the cluster bear a code point (RFC 2474), by the node's end of its
// interface.
type Marked struct {
	Link string
	DSCP uint8
}

// dscpMarks remembers which pods have asked for a code point.
type dscpMarks struct {
	catalog *catalog

	mu sync.Mutex
	by map[model.AttachmentKey]Marked // nil where nobody has
}

// note notes what the pod of a record asks for, when the record is done.
func (m *dscpMarks) note(rec Record) {
	for _, conf := range rec.Network.Plugins {
		of := m.catalog.can(conf).DSCP
		if of == nil {
			continue
		}
		class, asked := of(m.catalog.input(conf, rec.Request))
		link := rec.HostLink()
		if !asked || link == "" {
			continue
		}
		m.mu.Lock()
		if m.by == nil {
			m.by = map[model.AttachmentKey]Marked{}
		}
		m.by[rec.Key()] = Marked{link, class}
		m.mu.Unlock()
	}
}

// drop forgets an attachment's.
func (m *dscpMarks) drop(k model.AttachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, k)
}

// list returns those who have asked, by their links.
func (m *dscpMarks) list() []Marked {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Marked
	for _, asked := range m.by {
		out = append(out, asked)
	}
	slices.SortFunc(out, func(a, b Marked) int { return cmp.Or(cmp.Compare(a.Link, b.Link), cmp.Compare(a.DSCP, b.DSCP)) })
	return out
}
