// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"math/rand/v2"
	"time"
)

// Aim chooses at which moment of a call its process is killed. How long a call takes is measured once, and by a machine
// that may have been busier than it is later: each miss moves the aim forward, each hit back.
type Aim struct{ usual, now time.Duration }

// NewAim aims at calls that take so long.
func NewAim(usual time.Duration) *Aim { return &Aim{usual: usual, now: usual} }

// Moment is when to kill, counted from the call's beginning.
func (a *Aim) Moment() time.Duration { return rand.N(max(a.now, 1)) }

// Told learns whether the last kill hit a live call.
func (a *Aim) Told(hit bool) {
	if hit {
		a.now = min(a.usual, a.now*5/4)
	} else {
		a.now = a.now * 4 / 5
	}
}
