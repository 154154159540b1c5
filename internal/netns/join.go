// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Join runs f on a thread of its own that is inside the given kinds of namespaces (unix.CLONE_NEW…) of the process
// behind pidfd: a child that f starts is in them too. A pidfd, unlike a path below /proc, cannot come to mean another
// process. f should stay until its child has ended when the child is to die with its parent: the kernel sends that
// signal when the thread dies. The thread is never given back, it ends with f.
func Join(pidfd, kinds int, f func() error) error {
	done := make(chan error, 1)
	alone(func() {
		if kinds&unix.CLONE_NEWNS != 0 {
			// The kernel lets a thread change its mount namespace only when it shares root and directory with nobody.
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				done <- fmt.Errorf("unshare file system attributes: %w", err)
				return
			}
		}
		if kinds != 0 {
			if err := unix.Setns(pidfd, kinds); err != nil {
				done <- fmt.Errorf("enter namespaces (%#x) of a process: %w", kinds, err)
				return
			}
		}
		done <- f()
	})
	return <-done
}
