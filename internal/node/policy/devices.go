// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"

	"github.com/weft-net/weft/internal/kernel/vf"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errUnseen is of a device that some policy selects and that nothing can judge.
var errUnseen = errors.New("a machine drives the device by itself")

// cutDevice closes what a machine drives by itself while some policy selects it: its card gives it no link any more.
// Where there is no such card, nobody can: that is said, and an ADD is refused. It is the turn of who writes in pods.
func (pt *podTables) cutDevice(p policy.Place, selected bool) {
	f, err := vf.Find(cmp.Or(pt.cfg.Cards, vf.Devices), p.Device)
	changed := false
	if err == nil {
		changed, err = f.Cut(selected)
	}
	pt.desired.mu.Lock()
	at := pt.placeAt(p)
	was := at.broken
	at.broken, at.unseen = err, nil
	if errors.Is(err, vf.ErrAlone) || !selected {
		at.broken = nil // trying again does not help
	}
	if selected {
		at.unseen = errUnseen
	}
	again := was != nil && err != nil && was.Error() == err.Error()
	if err != nil && selected && !again {
		pt.desired.stats.Failures++
	}
	pt.desired.mu.Unlock()
	log := pt.log.With("pod", p.Pod.String(), "device", p.Device)
	switch {
	case err != nil && selected && !again:
		log.Error(
			"policies select a device that a machine drives by itself: they do not hold for it, and it cannot be closed", "err",
			err,
		)
	case changed && selected:
		log.Error("a device is closed: policies select it, and a machine drives it by itself", "card", f.Card,
			"function", f.Number)
	case changed:
		log.Info("a device is open again: no policy selects it", "card", f.Card, "function", f.Number)
	}
	if !selected {
		pt.forget(p)
	}
}
