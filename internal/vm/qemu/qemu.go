// SPDX-License-Identifier: Apache-2.0

// Package qemu runs a VM with QEMU: it builds the command line, passes taps as open descriptors, and connects to the
// monitor (QMP) and the serial console. It knows nothing of pods; the VM's network devices are model.VMDevice, as
// plan/vm computes them.
package qemu

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Config configures one VM.
type Config struct {
	// Program is the QEMU program; "" is qemu-system-x86_64 in the PATH.
	Program string
	Name    string
	// Dir is the directory of the sockets and the console's log. It must exist; the user that QEMU runs as needs no
	// permissions in it.
	Dir string
	// Kernel and Initrd are booted, Append is added to the kernel's command line.
	Kernel, Initrd, Append string
	// Memory is in MiB.
	Memory int // glossary: RAM
	CPUs   int
	// Accel is kvm or tcg; "" is tcg.
	Accel string
	// Devices are the VM's network devices, Taps the open taps of those that have a target, by the device's name.
	Devices []model.VMDevice
	Taps    map[string][]*os.File
	// VhostNet has open descriptors of /dev/vhost-net, one per tap of a device; none disables vhost.
	VhostNet map[string][]*os.File
	Disks    []Disk
	// Incoming makes the VM wait for a migration: IncomingDeferred, "tcp:ADDRESS:PORT", "unix:PATH".
	Incoming string
	// User is the user and the group that QEMU runs as; nil is this process's.
	User *uint32
	// NS is the network namespace; nil is this process's.
	NS *netns.NS
	// Extra are additional arguments.
	Extra []string
}

// Cmdline is the kernel's command line: a serial console, and no wait after a panic.
const Cmdline = "console=ttyS0 quiet panic=-1 no_timer_check"

// ConsoleName is the name of the socket of the serial console, in a VM's directory.
const ConsoleName = "console.sock"

const (
	qmpName, controlName, consoleLog, stderrLog = "qmp.sock", "qmp2.sock", "console.log", "qemu.log"
)

// monitors returns the arguments for the monitors' sockets.
func (c Config) monitors(fds *files) (argv []string, err error) {
	for _, m := range [][2]string{{"qmp", qmpName}, {"control", controlName}} {
		id, name := m[0], m[1]
		fd, err := fds.listen(c.Dir, name)
		if err != nil {
			return nil, err
		}
		argv = append(argv, "-chardev", "socket,id="+id+",server=on,wait=off,fd="+fd, "-mon", "chardev="+id+",mode=control")
	}
	return argv, nil
}

// argv returns QEMU's command line.
func (c Config) argv(fds *files) ([]string, error) {
	monitors, err := c.monitors(fds)
	if err != nil {
		return nil, err
	}
	console, err := fds.listen(c.Dir, ConsoleName)
	if err != nil {
		return nil, err
	}
	log, err := fds.log(ConsoleLog(c.Dir))
	if err != nil {
		return nil, err
	}
	accel := cmp.Or(c.Accel, "tcg")
	cpu := "max"
	if accel == "kvm" {
		cpu = "host"
	}
	if accel == "tcg" {
		// The kernel patches its own code: with a thread for each CPU, QEMU sometimes executes a half-patched
		// instruction.
		accel = "tcg,thread=single"
	}
	argv := []string{
		cmp.Or(c.Program, "qemu-system-x86_64"), "-name", "guest=" + escape(c.Name), "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot",
		"-M", "q35", "-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(max(c.CPUs, 1)), "-m", strconv.Itoa(c.Memory),
		"-add-fd", "set=1,fd=" + log, "-chardev",
		"socket,id=console,server=on,wait=off,logappend=on,logfile=/dev/fdset/1,fd=" + console,
		"-serial", "chardev:console",
	}
	if c.Kernel != "" {
		kernel, err := fds.open(c.Kernel)
		if err != nil {
			return nil, err
		}
		initrd, err := fds.open(c.Initrd)
		if err != nil {
			return nil, err
		}
		argv = append(argv, "-kernel", kernel, "-initrd", initrd, "-append", strings.TrimSpace(Cmdline+" "+c.Append))
	}
	argv = append(append(argv, monitors...), c.ports()...)
	for _, d := range c.Devices {
		args, err := c.device(d, fds)
		if err != nil {
			return nil, err
		}
		argv = append(argv, args...)
	}
	disks, err := c.disks(fds)
	if err != nil {
		return nil, err
	}
	argv = append(argv, disks...)
	if c.Incoming != "" {
		argv = append(argv, "-incoming", c.Incoming)
	}
	return append(argv, c.Extra...), nil
}
