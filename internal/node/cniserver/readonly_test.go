// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestQueueThatBecomesReadOnly: while an entry cannot be removed because the file system is read-only, its DEL is
// repeated: an ADD of the same attachment is refused, or the next repetition would delete it. Others are not affected,
// and it succeeds when the file system is writable again.
func TestQueueThatBecomesReadOnly(t *testing.T) {
	rec := &recorder{}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	dir := wire.QueueDir(socket)
	if err := errors.Join(os.MkdirAll(dir, 0o700), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k")); err != nil {
		nettest.Skip(t, fmt.Sprintf("a tmpfs cannot be mounted here: %v", err))
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	enqueue(t, socket, 1, delFrame("c"))
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	defer serveAt(t, rec, socket)()
	for until := time.Now().Add(time.Minute); !slices.Contains(rec.seen(), "DEL net eth0"); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the queued DEL is not done")
		}
	}
	ns := nettest.NS(t, "c")
	time.Sleep(2 * coarse) // from now on an unchanged modification time means no new entry
	for range 2 {
		a := ask(t, socket, oneNetwork, ns, vars("ADD", "c")...)
		if a.exit == 0 || a.fault.Code != int(model.CodeTryAgain) || !strings.Contains(a.fault.Msg, wire.QueueName(1, 1)) {
			t.Errorf("ADD while its DEL will be done again: %+v", a)
		}
	}
	if a := ask(t, socket, oneNetwork, ns, vars("ADD", "other")...); a.exit != 0 {
		t.Errorf("ADD of another container: %+v", a)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	rec.seen()
	if a := ask(t, socket, oneNetwork, ns, vars("ADD", "c")...); a.exit != 0 {
		t.Errorf("ADD after the file system can be written: %+v", a)
	}
	if names, calls := entries(t, socket, 0), rec.seen(); len(names) > 0 || calls[len(calls)-1] != "ADD net eth0" {
		t.Errorf("left in the queue: %q; calls: %q", names, calls)
	}
}
