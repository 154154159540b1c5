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

// tries is how often weft-guest is started again before it is given up, unless it has run for wellTime in between.
const (
	tries    = 5
	wellTime = time.Minute
)

// speaker is the weft-guest beside a hypervisor.
type speaker struct {
	problem chan error
	stop    func()
	well    time.Duration // wellTime; shorter for tests
}

func (s *speaker) end() {
	if s.stop != nil {
		s.stop()
	}
}

// speak runs weft-guest beside the hypervisor, with the hypervisor's user and no rights, and starts it again when it
// ends. Where nothing is told to guests there is none, and where there is one already it stays.
func (l *launch) speak(ctx context.Context) {
	quiet := true
	for _, n := range l.record.Networks {
		quiet = quiet && n.Guest == nil
	}
	if quiet || l.speaker.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	l.speaker.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		var err error
		for n := 1; n <= tries; n++ {
			well := time.After(cmp.Or(l.speaker.well, wellTime))
			if err = l.speakOnce(ctx); ctx.Err() != nil {
				return
			}
			select {
			case <-well: // that it ended long ago does not count
				n = 1
			default:
			}
			l.Log.Warn("weft-guest ended", "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(n) * 200 * time.Millisecond):
			}
		}
		l.speaker.problem <- fmt.Errorf("it ended %d times: %w", tries, err)
	}()
}

func (l *launch) speakOnce(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(l.Dir, speakerLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	program, err := os.Open(l.Speaker) // the user need not be allowed to walk to it
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	cmd := exec.Command("/proc/self/fd/3", "--socket", host.GuestSocket)
	cmd.Args[0], cmd.ExtraFiles = "weft-guest", []*os.File{program}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = "/", log, log, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if user := l.Input.VM.Owner; int(user) != os.Geteuid() {
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

const speakerLog = "weft-guest.log"
