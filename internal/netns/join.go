// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Join runs f on a thread of its own inside the namespaces (unix.CLONE_NEW…) of the process behind pidfd: a child that
// f starts is in them too. A pidfd, unlike a path below /proc, cannot refer to another process later. When the child is
// to die with its parent, f should return only after the child has ended: the kernel sends that signal when the thread
// dies. The thread ends with f and is never reused.
func Join(pidfd, kinds int, f func() error) error {
	done := make(chan error, 1)
	onNewThread(func() {
		if kinds&unix.CLONE_NEWNS != 0 {
			// The kernel lets a thread change its mount namespace only when no other thread shares its root and
			// directory.
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
