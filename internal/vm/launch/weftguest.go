// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/vm/child"
	"github.com/weft-net/weft/internal/vm/host"
)

// maxStarts is how often weft-guest is started before the VM fails; the count is reset when it has run for healthyTime.
const (
	maxStarts   = 5
	healthyTime = time.Minute
)

// weftGuest is the weft-guest process of a VM.
type weftGuest struct {
	problem chan error
	stop    func()
	healthy time.Duration // healthyTime; shorter for tests
}

func (s *weftGuest) end() {
	if s.stop != nil {
		s.stop()
	}
}

// startWeftGuest runs weft-guest with the hypervisor's user and no capabilities, and restarts it when it ends. It does
// nothing if no guest needs weft-guest or if it runs already.
func (l *launch) startWeftGuest(ctx context.Context) {
	unneeded := true
	for _, n := range l.record.Networks {
		unneeded = unneeded && n.Guest == nil
	}
	if unneeded || l.weftGuest.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	l.weftGuest.stop = func() { cancel(); <-done }
	owner := l.Input.VM.Owner // changes of the VM, which do not change its owner, write Input
	go func() {
		defer close(done)
		var err error
		for n := 1; n <= maxStarts; n++ {
			healthy := time.After(cmp.Or(l.weftGuest.healthy, healthyTime))
			if err = l.runWeftGuest(ctx, owner); ctx.Err() != nil {
				return
			}
			select {
			case <-healthy: // earlier restarts do not count
				n = 1
			default:
			}
			l.Log.Warn("weft-guest ended", "vm", l.key, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(n) * 200 * time.Millisecond):
			}
		}
		l.weftGuest.problem <- fmt.Errorf("it ended %d times: %w", maxStarts, err)
	}()
}

// runWeftGuest runs weft-guest as a user until it ends.
func (l *launch) runWeftGuest(ctx context.Context, user uint32) error {
	log, err := os.OpenFile(filepath.Join(l.Dir, weftGuestLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	program, err := os.Open(l.WeftGuest) // the user may lack permissions for the path
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	cmd := exec.Command("/proc/self/fd/3", "--socket", host.GuestSocket)
	cmd.Args[0], cmd.ExtraFiles = "weft-guest", []*os.File{program}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = "/", log, log, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if int(user) != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: user}
	}
	c, err := child.Start(l.Pod.NS, cmd)
	if err != nil {
		return err
	}
	defer c.Kill()
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return c.Err()
	}
}

const weftGuestLog = "weft-guest.log"
