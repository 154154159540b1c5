// SPDX-License-Identifier: Apache-2.0

package move

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

// An agent that ends while a machine comes, or has just come, leaves its relays in a file for the next one: nodes that
// do not know of the move yet go on sending to where the machine was. The status of the mesh has them too, but is
// written when there is time for it, and does not say when they end.

// savedRelay is a relay of one attachment.
type savedRelay struct {
	Attachment string       `json:"attachment"`
	Serial     int64        `json:"serial"`
	From       string       `json:"from"`
	Addrs      []netip.Addr `json:"addresses"`
	// Until is zero while the machine is awaited.
	Until time.Time `json:"until,omitzero"`
}

// relayed is the relay as it is now, nil when it is over. However clocks were set, it lasts no longer than one that
// begins.
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

// loadRelays reads what the agent before this one has left.
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
		m.cfg.Log.Warn("what other nodes pass on to machines that have just come is refused",
			"path", m.cfg.RelayFile, "err", err)
		return nil
	}
	return out
}

// relayBefore is the relay that an attachment had with the agent before this one; the caller holds the lock.
func (m *Mover) relayBefore(rec attach.Record) *relayed {
	key := rec.Key().String()
	for _, s := range m.before {
		if s.Attachment == key && s.Serial == rec.Serial {
			return s.relayed(m.cfg.Now())
		}
	}
	return nil
}

// saveRelays writes down what the agent after this one must know.
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
		m.cfg.Log.Warn("an agent that is started again would refuse what is passed on to machines that have just come",
			"path", m.cfg.RelayFile, "err", err)
	}
}
