// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/endpoint/attach"
)

// An agent that ends while a VM is coming, or has just come, saves its relays in a file for the next one: nodes that
// do not know of the move yet still send to the source node. The status of the mesh has the relays too, but is written
// with a delay and without their end.

// RelayFileName is the name of the file in the state directory, and RelayFileVersion its format.
const (
	RelayFileName    = "relays.json"
	RelayFileVersion = 1
)

// savedRelay is a relay of one attachment.
type savedRelay struct {
	Attachment string       `json:"attachment"`
	Serial     int64        `json:"serial"`
	From       string       `json:"from"`
	Addrs      []netip.Addr `json:"addresses"`
	// Until is zero while the VM is awaited.
	Until time.Time `json:"until,omitzero"`
}

// relayed returns the current relay, nil if it is over. If the clock was changed, it still lasts no longer than a new
// one.
func (s savedRelay) relayed(now time.Time) *relayed {
	if s.Until.IsZero() {
		return &relayed{from: s.From}
	}
	until := s.Until
	if latest := now.Add(relayTime); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return nil
	}
	return &relayed{s.From, until}
}

// loadRelays reads the file of the previous agent.
func (m *Mover) loadRelays() (out []savedRelay) {
	if m.cfg.RelayFile == "" {
		return nil
	}
	b, err := os.ReadFile(m.cfg.RelayFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		m.cfg.Log.Warn("relays could not be read, and packets that source nodes forward to VMs are dropped",
			"path", m.cfg.RelayFile, "err", err)
		return nil
	}
	return out
}

// relayBeforeLocked returns the relay that an attachment had in the previous agent.
func (m *Mover) relayBeforeLocked(rec attach.Record) *relayed {
	key := rec.Key().String()
	for _, s := range m.before {
		if s.Attachment == key && s.Serial == rec.Serial {
			return s.relayed(m.cfg.Now())
		}
	}
	return nil
}

// saveRelays writes the file for the next agent.
func (m *Mover) saveRelays() {
	if m.cfg.RelayFile == "" {
		return
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	out := append([]savedRelay{}, m.before...)
	for key, f := range m.followers {
		if r := f.relay.Load(); r != nil {
			out = append(out, savedRelay{key.String(), f.serial, r.from, f.addrs, r.until})
		}
	}
	m.mu.Unlock()
	b, err := json.Marshal(out)
	if err == nil {
		err = atomicfile.Write(m.cfg.RelayFile, append(b, '\n'), 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		m.cfg.Log.Warn("relays could not be saved, and a restarted agent would drop packets that source nodes forward to VMs",
			"path", m.cfg.RelayFile, "err", err)
	}
}
