// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"slices"
	"sync"

	"github.com/weft-net/weft/internal/model"
)

// Marked is a pod whose packets to the outside of the cluster bear a code point (RFC 2474), by the node's end of its interface.
type Marked struct {
	Link string
	DSCP uint8
}

// marked remembers who has asked.
type marked struct {
	mu sync.Mutex
	by map[model.AttachmentKey]Marked // nil where nobody has
}

// mark notes what the pod of a record asks for, when the record is done.
func (a *Attacher) mark(rec Record) {
	for _, conf := range rec.Network.Plugins {
		of := a.can(conf).DSCP
		if of == nil {
			continue
		}
		class, asked := of(conf, rec.Request)
		link := rec.HostLink()
		if !asked || link == "" {
			continue
		}
		a.marked.mu.Lock()
		if a.marked.by == nil {
			a.marked.by = map[model.AttachmentKey]Marked{}
		}
		a.marked.by[rec.Key()] = Marked{link, class}
		a.marked.mu.Unlock()
	}
}

// drop forgets an attachment's.
func (m *marked) drop(k model.AttachmentKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, k)
}

// Marked are those who have asked, by their links.
func (a *Attacher) Marked() []Marked {
	a.marked.mu.Lock()
	defer a.marked.mu.Unlock()
	var out []Marked
	for _, m := range a.marked.by {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Marked) int { return cmp.Or(cmp.Compare(a.Link, b.Link), cmp.Compare(a.DSCP, b.DSCP)) })
	return out
}
