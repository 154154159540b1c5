// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/child"
)

// Machine is a machine that runs. It dies with the process that started it.
type Machine struct {
	*Monitor
	// Dir is where its sockets and its console's log are.
	Dir  string
	PID  int
	proc *child.Child

	mu sync.Mutex
	// ports are the cards that can be taken away, by the ports that they are in; "" is a free one.
	ports []string
}

// startTime bounds how long QEMU may take until it answers, also on a machine that is busy.
const startTime = 60 * time.Second

// Start starts a machine, and waits until its monitor answers; the guest has only begun to boot by then. The taps
// belong to QEMU afterwards and may be closed here.
func Start(ctx context.Context, c Config) (*Machine, error) {
	var fds files
	argv, err := c.argv(&fds)
	if err != nil {
		fds.close()
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, problems), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		fds.close()
		return nil, fmt.Errorf("machine %s: %w", c.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, fds.all
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if c.User != nil && int(*c.User) != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: *c.User, Gid: *c.User}
	}
	m := &Machine{Dir: c.Dir, ports: append(c.seats(), make([]string, spare)...)}
	m.proc, err = child.Start(c.NS, cmd)
	fds.close() // a socket that nobody has any more refuses
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "install qemu-system-x86", "machine %s: %w", c.Name, err)
	}
	m.PID = m.proc.Process.Pid
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if m.Monitor, err = m.dial(ctx); err == nil {
		err = m.links(ctx, c.Devices)
	}
	if err != nil {
		m.Kill()
		return nil, fmt.Errorf("machine %s: %w%s", c.Name, err, said(log))
	}
	return m, nil
}

// links takes the carrier from cards that are to have none.
func (m *Machine) links(ctx context.Context, devices []model.VMDevice) error {
	for _, d := range devices {
		if d.Down {
			if err := m.SetLink(ctx, d, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// said is what QEMU has complained of.
func said(log *os.File) string {
	b, _ := os.ReadFile(log.Name())
	if text := strings.TrimSpace(string(b)); text != "" {
		return ": " + strings.ReplaceAll(text, "\n", "; ")
	}
	return ""
}

// dial connects to the monitor as soon as it is there.
func (m *Machine) dial(ctx context.Context) (*Monitor, error) {
	for {
		q, err := Dial(ctx, m.Dir)
		if err == nil {
			return q, nil
		}
		select {
		case <-m.Done():
			return nil, fmt.Errorf("qemu ended: %w", cmpErr(m.Err()))
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func cmpErr(err error) error {
	if err == nil {
		return errors.New("at once")
	}
	return err
}

// Done is closed when the machine has ended.
func (m *Machine) Done() <-chan struct{} { return m.proc.Done() }

// Err tells how it ended: nil is by itself, or as it was asked to.
func (m *Machine) Err() error { return m.proc.Err() }

// Kill ends the machine at once.
func (m *Machine) Kill() {
	m.proc.Kill()
	if m.Monitor != nil {
		m.Close()
	}
}

// Stop presses the machine's button, and ends it at the latest when the context does. A guest that has only begun to
// boot does not see the button: it is pressed again.
func (m *Machine) Stop(ctx context.Context) {
	defer m.Kill()
	for {
		if _, err := m.Command(ctx, "system_powerdown", nil); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-m.Done():
			return
		case <-time.After(again):
		}
	}
}

// again is when the button is pressed again.
const again = 2 * time.Second
