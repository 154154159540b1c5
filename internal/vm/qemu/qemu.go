// SPDX-License-Identifier: Apache-2.0

// Package qemu runs a virtual machine by QEMU itself: its command line, the taps that it gets as open descriptors, its
// monitor (QMP) and its serial console. It knows nothing of pods; what the machine's network cards are is told in
// plan/vm's words.
package qemu

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// Config is one machine.
type Config struct {
	// Program is QEMU; "" is qemu-system-x86_64 in the path.
	Program string
	Name    string
	// Dir is where the sockets and the console's log are. It must be there; the user that QEMU runs as needs no rights in
	// it.
	Dir string
	// Kernel and Initrd are what is booted, Append what the kernel is told beyond the console.
	Kernel, Initrd, Append string
	// Memory is in MiB.
	Memory int
	CPUs   int
	// Accel is kvm or tcg; "" is tcg.
	Accel string
	// Devices are the machine's network cards, Taps the open taps of those that have a target, by the device's name.
	Devices []model.VMDevice
	Taps    map[string][]*os.File
	// VhostNet are open descriptors of /dev/vhost-net, as many as there are taps of the device; none is without.
	VhostNet map[string][]*os.File
	Disks    []Disk
	// Incoming has the machine wait for another one's state: Deferred, "tcp:ADDRESS:PORT", "unix:PATH".
	Incoming string
	// User is whom QEMU runs as, with the group of the same number; nil is who this process is.
	User *uint32
	// NS is the namespace that it runs in; nil is this process's.
	NS *netns.NS
	// Extra are further arguments.
	Extra []string
}

// Cmdline is what the kernel is told: its console, and that there is nobody to read a screen.
const Cmdline = "console=ttyS0 quiet panic=-1 no_timer_check"

// ConsoleName is the name of the socket of the serial console, in a machine's directory.
const ConsoleName = "console.sock"

const (
	qmpName, controlName, consoleLog, problems = "qmp.sock", "qmp2.sock", "console.log", "qemu.log"
)

// monitors are the sockets that the machine is commanded by.
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

// argv is QEMU's command line.
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
		// The kernel patches its own code while it runs: with a thread for each processor QEMU now and then runs a half
		// patched instruction.
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
		some, err := c.device(d, fds)
		if err != nil {
			return nil, err
		}
		argv = append(argv, some...)
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
