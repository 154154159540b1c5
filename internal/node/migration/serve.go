// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Prefix is the path prefix of a Mover's routes.
const Prefix = "/move"

// The states of an attachment of a VM.
const (
	Here    = "here"
	Awaited = "awaited" // the VM migrates to this node
	Left    = "left"
)

// Attachment is an attachment of a VM on this node.
type Attachment struct {
	VM        model.VMRef         `json:"machine"`
	Key       model.AttachmentKey `json:"attachment"`
	Addresses []netip.Addr        `json:"addresses"`
	// Pod is the name of its pod, empty if CNI_ARGS named the VM.
	Pod string `json:"pod,omitempty"`
	// State is Here, Awaited or Left.
	State string `json:"state"`
}

// Attachments returns those of VMs on this node.
func (m *Mover) Attachments() []Attachment {
	m.mu.Lock()
	followers := make([]*vmFollower, 0, len(m.followers))
	for _, f := range m.followers {
		followers = append(followers, f)
	}
	m.mu.Unlock()
	out := []Attachment{}
	for _, f := range followers {
		rec, found, err := m.cfg.Records.Get(f.key)
		if err != nil || !found {
			continue
		}
		one := Attachment{VM: f.vm, Key: f.key, Addresses: f.addrs, Pod: f.pod, State: Here}
		switch {
		case rec.Standby && rec.Request.Incoming() && f.left.Load() == nil:
			one.State = Awaited
		case rec.Standby:
			one.State = Left
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Attachment) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// Routes returns the admin routes of a Mover: GET lists the VMs' attachments on this node, and POST
// /here?namespace=…&name=…&pod=… reports that a VM runs here.
func (m *Mover) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET /machines": func(*http.Request) (any, error) { return m.Attachments(), nil }, // glossary: the route's name
		"POST /here": func(r *http.Request) (any, error) {
			vm := model.VMRef{Namespace: r.FormValue("namespace"), Name: r.FormValue("name")}
			return struct{}{}, m.Switch(vm, r.FormValue("pod"))
		},
	}
}
