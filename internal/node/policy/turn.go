// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// turn is whose turn it is to ask the kernel for something that may take it long. The lock (desired.mu) is never
// held meanwhile, and nobody who has it waits for a turn.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }

func (t turn) end() { <-t }

// takeUnless takes the turn; false when late has fired before.
func (t turn) takeUnless(late <-chan time.Time) bool {
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	select {
	case t <- struct{}{}:
		return true
	case <-late:
		return false
	}
}
