// SPDX-License-Identifier: Apache-2.0

package policy

import "time"

// kernelLock serializes requests to the kernel that may take long; an attempt to lock it may have a deadline.
// desired.mu is never locked meanwhile, and code that has locked desired.mu never waits for a kernelLock.
type kernelLock chan struct{}

func newKernelLock() kernelLock { return make(kernelLock, 1) }

func (t kernelLock) lock() { t <- struct{}{} }

func (t kernelLock) unlock() { <-t }

// tryLockUntil locks; false if late fires before.
func (t kernelLock) tryLockUntil(late <-chan time.Time) bool {
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
