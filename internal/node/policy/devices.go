// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel/vf"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errUnseen is of a device that some policy selects and that nothing can judge.
var errUnseen = errors.New("a machine drives the device by itself")

// cutDevice closes what a machine drives by itself while some policy selects it: its card gives it no link any more.
// Where there is no such card, nobody can: that is said, and an ADD is refused. It is the turn of who writes in pods.
func (e *Enforcer) cutDevice(p policy.Place, selected bool) {
	f, err := vf.Find(cmp.Or(e.cfg.Cards, vf.Devices), p.Device)
	changed := false
	if err == nil {
		changed, err = f.Cut(selected)
	}
	e.mu.Lock()
	at := e.placeAt(p)
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
		e.stats.Failures++
	}
	e.mu.Unlock()
	log := e.log.With("pod", p.Pod.String(), "device", p.Device)
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
		e.forget(p)
	}
}

// selecting are the policies that select an interface, for people. The lock is held.
func (e *Enforcer) selecting(ep model.WorkloadEndpoint) string {
	v, err := e.index.Show(ep.Pod)
	if err != nil {
		return "not known which"
	}
	var names []string
	for _, i := range v.Interfaces {
		if i.IfName != ep.IfName {
			continue
		}
		for _, k := range slices.Concat(i.Ingress.Selected, i.Egress.Selected) {
			if !slices.Contains(names, k.String()) {
				names = append(names, k.String())
			}
		}
	}
	return cmp.Or(strings.Join(names, ", "), "its pod is not known")
}
