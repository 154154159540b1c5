// SPDX-License-Identifier: Apache-2.0

package move

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// Prefix is what a Mover's routes are under.
const Prefix = "/move"

// Attachment is one of a machine on this node, as a Mover tells of it.
type Attachment struct {
	Machine   model.VMRef         `json:"machine"`
	Key       model.AttachmentKey `json:"attachment"`
	Addresses []netip.Addr        `json:"addresses"`
	// Pod is the name of its pod, empty where CNI_ARGS say which machine it is.
	Pod string `json:"pod,omitempty"`
	// State is "here", "awaited", or "left".
	State string `json:"state"`
}

// Attachments are those of machines on this node.
func (m *Mover) Attachments() []Attachment {
	m.mu.Lock()
	followers := make([]*follower, 0, len(m.followers))
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
		one := Attachment{Machine: f.vm, Key: f.key, Addresses: f.addrs, Pod: f.pod, State: "here"}
		switch {
		case rec.Standby && rec.Request.Incoming() && f.left.Load() == 0:
			one.State = "awaited"
		case rec.Standby:
			one.State = "left"
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b Attachment) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// Routes are what root may ask a Mover: GET /machines tells of those on this node, POST /here?namespace=…&name=…&pod=…
// says that one runs here.
func (m *Mover) Routes() adminapi.Routes {
	return adminapi.Routes{
		"GET /machines": func(*http.Request) (any, error) { return m.Attachments(), nil },
		"POST /here": func(r *http.Request) (any, error) {
			vm := model.VMRef{Namespace: r.FormValue("namespace"), Name: r.FormValue("name")}
			return struct{}{}, m.Switch(vm, r.FormValue("pod"))
		},
	}
}
