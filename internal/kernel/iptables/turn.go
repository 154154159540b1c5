// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a turn is waited for. Anybody may open a namespace of his own process and hold its lock, so
// that going on without it (a rule may come to be there twice) is better than never.
const patience = 10 * time.Second

// turn waits until no other process of ours changes the namespace's tables. The lock is on the namespace itself:
// whoever means the same one finds it, whatever directories he sees.
func (c *Conn) turn(ctx context.Context) (release func()) {
	fd := -1
	err := c.ns.Do(func() (err error) {
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return func() {}
	}
	deadline := time.NewTimer(patience)
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
