// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"errors"

	"github.com/weft-net/weft/internal/kernel/vf"
	"github.com/weft-net/weft/internal/plan/policy"
)

// errUnenforceable is the error of a selected device on which policy cannot be enforced.
var errUnenforceable = errors.New("a VM drives the device directly")

// disableDevice disables the link of a device that a VM drives directly while a policy selects it: the card's PF turns
// off the VF's link. Without such a card it cannot be disabled: that is logged, and an ADD is refused. The caller has
// the kernel lock of the pods' tables.
func (pt *podTables) disableDevice(p policy.EnforcementPoint, selected bool) {
	f, err := vf.Find(cmp.Or(pt.cfg.Cards, vf.Devices), p.Device)
	changed := false
	if err == nil {
		changed, err = f.Disable(selected)
	}
	pt.desired.mu.Lock()
	at := pt.placeAtLocked(p)
	was := at.broken
	at.broken, at.unenforceable = err, nil
	if errors.Is(err, vf.ErrNoPhysicalFunction) || !selected {
		at.broken = nil // a retry does not help
	}
	if selected {
		at.unenforceable = errUnenforceable
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
			"policies select a device that a VM drives directly; they are not enforced, and its link cannot be disabled", "err",
			err,
		)
	case changed && selected:
		log.Error("device is disabled: policies select it, and a VM drives it directly", "card", f.Card,
			"function", f.Number)
	case changed:
		log.Info("device is enabled again: no policy selects it", "card", f.Card, "function", f.Number)
	}
	if !selected {
		pt.forget(p)
	}
}
