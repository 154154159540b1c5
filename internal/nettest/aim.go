// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"math/rand/v2"
	"time"
)

// Aim chooses at which moment of a call its process is killed. The duration of a call is measured once, possibly while
// the host was busier than later: each miss moves the moment forward, each hit back.
type Aim struct{ usual, now time.Duration }

// NewAim returns an Aim for calls that usually take so long.
func NewAim(usual time.Duration) *Aim { return &Aim{usual: usual, now: usual} }

// Moment returns when to kill, counted from the beginning of the call.
func (a *Aim) Moment() time.Duration { return rand.N(max(a.now, 1)) }

// Record records whether the last kill hit a live call.
func (a *Aim) Record(hit bool) {
	if hit {
		a.now = min(a.usual, a.now*5/4)
	} else {
		a.now = a.now * 4 / 5
	}
}
