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

// VM is a running VM. It ends when the process that started it ends.
type VM struct {
	*Monitor
	// Dir is the directory of its sockets and its console's log.
	Dir  string
	PID  int
	proc *child.Child

	mu sync.Mutex
	// ports are the names of the devices that can be unplugged, by their ports; "" is a free port.
	ports []string
}

// startTime is the timeout until QEMU's monitor responds, also on a busy host.
const startTime = 60 * time.Second

// Start starts a VM and waits until its monitor responds; the guest is still booting then. The caller may close the
// taps afterwards.
func Start(ctx context.Context, c Config) (*VM, error) {
	var fds files
	argv, err := c.argv(&fds)
	if err != nil {
		fds.close()
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, stderrLog), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		fds.close()
		return nil, fmt.Errorf("VM %s: %w", c.Name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", log, log, fds.passed
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if c.User != nil && int(*c.User) != os.Geteuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: *c.User, Gid: *c.User}
	}
	m := &VM{Dir: c.Dir, ports: append(c.hotplugNICs(), make([]string, sparePorts)...)}
	m.proc, err = child.Start(c.NS, cmd)
	fds.close() // connections to a socket without a process are refused
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidEnv, "install qemu-system-x86", "VM %s: %w", c.Name, err)
	}
	m.PID = m.proc.Process.Pid
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if m.Monitor, err = m.dial(ctx); err == nil {
		err = m.initialLinks(ctx, c.Devices)
	}
	if err != nil {
		m.Kill()
		return nil, fmt.Errorf("VM %s: %w%s", c.Name, err, stderrText(log))
	}
	return m, nil
}

// initialLinks sets the carrier of devices that are down off.
func (m *VM) initialLinks(ctx context.Context, devices []model.VMDevice) error {
	for _, d := range devices {
		if d.Down {
			if err := m.SetLink(ctx, d, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// stderrText returns QEMU's error output.
func stderrText(log *os.File) string {
	b, _ := os.ReadFile(log.Name())
	if text := strings.TrimSpace(string(b)); text != "" {
		return ": " + strings.ReplaceAll(text, "\n", "; ")
	}
	return ""
}

// dial connects to the monitor when it is ready.
func (m *VM) dial(ctx context.Context) (*Monitor, error) {
	for {
		q, err := Dial(ctx, m.Dir)
		if err == nil {
			return q, nil
		}
		select {
		case <-m.Done():
			return nil, fmt.Errorf("qemu ended: %w", endError(m.Err()))
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func endError(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// Done is closed when the VM has ended.
func (m *VM) Done() <-chan struct{} { return m.proc.Done() }

// Err returns how the VM ended: nil is a regular end.
func (m *VM) Err() error { return m.proc.Err() }

// Kill ends the VM at once.
func (m *VM) Kill() {
	m.proc.Kill()
	if m.Monitor != nil {
		m.Close()
	}
}

// Stop sends ACPI shutdown, and kills the VM when the context ends. It repeats the request, because a guest that is
// booting ignores it.
func (m *VM) Stop(ctx context.Context) {
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
		case <-time.After(retryEvery):
		}
	}
}

// retryEvery is the interval of repeated requests to a guest.
const retryEvery = 2 * time.Second
