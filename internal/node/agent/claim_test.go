// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

// TestLockTakenByAnOrdinaryUser: an unprivileged process that uses the name of the namespace lock does not prevent an agent from
// starting.
func TestLockTakenByAnOrdinaryUser(t *testing.T) {
	w := newWorld(t)
	const noOwner, same = 65534, ^uintptr(0)
	var taken net.Listener
	err := w.node.Do(func() error { // on a thread of its own, which has the user's ID while it listens
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, noOwner, same); errno != 0 {
			return errno
		}
		defer func() { _, _, _ = unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same) }()
		l, err := net.Listen("unix", "@weft-agent")
		taken = l
		return err
	})
	if err != nil {
		nettest.Skip(t, "no process of another user here: "+err.Error())
	}
	defer func() { _ = taken.Close() }()
	w.start()
	w.stop()
	if log := w.log(); !strings.Contains(log, "network namespace is not locked") || !strings.Contains(log, "uid=65534") {
		t.Errorf("the log does not say that there is no lock: %s", log)
	}
}
