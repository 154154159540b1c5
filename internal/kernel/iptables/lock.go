// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// lockTimeout is the maximum wait for the lock. Any process may open its own namespace and lock it, so proceeding without
// the lock (a rule may be added twice) is better than failing.
const lockTimeout = 10 * time.Second

// lockNamespace waits until no other process of weft's changes the namespace's tables. The lock is on the namespace itself, so
// that all processes use the same one, whatever their mount namespaces.
func (c *Conn) lockNamespace(ctx context.Context) (release func()) {
	fd := -1
	err := c.ns.Do(func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return func() {}
	}
	deadline := time.NewTimer(lockTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		case <-deadline.C:
		}
		break
	}
	return func() { _ = unix.Close(fd) }
}
