// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// DSCPMark is the DSCP (RFC 2474) of a pod's packets that leave the cluster. Link is the node's end of the pod's
// interface.
type DSCPMark struct {
	Link string
	DSCP uint8
}

// dscpMarks stores which pods request a DSCP.
type dscpMarks struct {
	catalog *catalog

	mu sync.Mutex
	by map[model.AttachmentKey]DSCPMark // nil if no pod does
}

// note stores the DSCP that the pod of a finished record requests.
func (m *dscpMarks) note(rec Record) {
	for _, conf := range rec.Network.Plugins {
		of := m.catalog.capabilities(conf).DSCP
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
			m.by = map[model.AttachmentKey]DSCPMark{}
		}
		m.by[rec.Key()] = DSCPMark{link, class}
		m.mu.Unlock()
	}
}

// drop deletes an attachment's mark.
func (m *dscpMarks) drop(k model.AttachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, k)
}

// list returns the marks, ordered by link.
func (m *dscpMarks) list() []DSCPMark {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []DSCPMark
	for _, asked := range m.by {
		out = append(out, asked)
	}
	slices.SortFunc(out, func(a, b DSCPMark) int {
		return cmp.Or(cmp.Compare(a.Link, b.Link), cmp.Compare(a.DSCP, b.DSCP))
	})
	return out
}
