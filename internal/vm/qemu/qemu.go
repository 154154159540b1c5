// SPDX-License-Identifier: Apache-2.0

// Package qemu runs a virtual machine by QEMU itself: its command line, the taps that it gets as open descriptors, its
// monitor (QMP) and its serial console. It knows nothing of pods; what the machine's network cards are is told in plan/vm's
// words.
package qemu

import (
	"cmp"
	"fmt"
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
	// Dir is where the sockets and the console's log are. It must be there; the user that QEMU runs as needs no rights in it.
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
	qmpName, controlName, consoleLog, problems = "qmp.sock", "control.sock", "console.log", "qemu.log"
)

// argv is QEMU's command line.
func (c Config) argv(fds *files) ([]string, error) {
	monitor, err := fds.listen(c.Dir, qmpName)
	if err != nil {
		return nil, err
	}
	control, err := fds.listen(c.Dir, controlName)
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
		// The kernel patches its own code while it runs: with a thread for each processor QEMU now and then runs a half patched
		// instruction.
		accel = "tcg,thread=single"
	}
	argv := []string{
		cmp.Or(c.Program, "qemu-system-x86_64"), "-name", "guest=" + escape(c.Name), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-M", "q35", "-accel", accel, "-cpu", cpu, "-smp", strconv.Itoa(max(c.CPUs, 1)), "-m", strconv.Itoa(c.Memory),
		"-chardev", "socket,id=qmp,server=on,wait=off,fd=" + monitor, "-mon", "chardev=qmp,mode=control",
		"-chardev", "socket,id=control,server=on,wait=off,fd=" + control, "-mon", "chardev=control,mode=control",
		"-add-fd", "set=1,fd=" + log, "-chardev", "socket,id=console,server=on,wait=off,logappend=on,logfile=/dev/fdset/1,fd=" + console,
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

// escape doubles commas, which would end a value.
func escape(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// ID is QEMU's name of a device's end in the machine, for set_link and device_del.
func ID(d model.VMDevice) string { return "ua-" + d.Name }

// device is a network card.
func (c Config) device(d model.VMDevice, fds *files) ([]string, error) {
	if d.HostPCI != "" {
		return []string{"-device", "vfio-pci,host=" + d.HostPCI + ",id=ua-sriov-" + escape(d.Name) + place(d)}, nil
	}
	taps := c.Taps[d.Name]
	if len(taps) == 0 {
		return nil, fmt.Errorf("machine %s: interface %s: no tap is open", c.Name, d.Name)
	}
	netdev := "tap,id=host-" + escape(d.Name) + list(fds, "fd", taps)
	if vhost := c.VhostNet[d.Name]; len(vhost) > 0 {
		netdev += ",vhost=on" + list(fds, "vhostfd", vhost)
	} else {
		netdev += ",vhost=off"
	}
	kind, err := driver(d.Model)
	if err != nil {
		return nil, fmt.Errorf("machine %s: interface %s: %w", c.Name, d.Name, err)
	}
	card := kind + ",netdev=host-" + escape(d.Name) + ",id=" + escape(ID(d)) + ",mac=" + d.MAC
	if strings.HasPrefix(kind, "virtio") {
		if d.MTU > 0 {
			card += ",host_mtu=" + strconv.Itoa(d.MTU)
		}
		if n := len(taps); n > 1 {
			card += ",mq=on,vectors=" + strconv.Itoa(2*n+2)
		}
	}
	if d.BootOrder == 0 { // nothing is ever read from it
		card += ",romfile="
	}
	return []string{"-netdev", netdev, "-device", card + place(d)}, nil
}

// list is a key with one descriptor, or the key's plural with several.
func list(fds *files, key string, of []*os.File) string {
	var numbers []string
	for _, f := range of {
		numbers = append(numbers, fds.add(f))
	}
	if len(numbers) > 1 {
		key += "s"
	}
	return "," + key + "=" + strings.Join(numbers, ":")
}

// place is where on the bus a card is, and how the guest finds it.
func place(d model.VMDevice) string {
	s := ""
	if d.BootOrder > 0 {
		s += ",bootindex=" + strconv.FormatUint(uint64(d.BootOrder), 10)
	}
	if d.ACPIIndex > 0 {
		s += ",acpi-index=" + strconv.FormatUint(uint64(d.ACPIIndex), 10)
	}
	if _, slot, ok := strings.Cut(strings.TrimPrefix(d.PCIAddress, "0000:"), ":"); ok {
		s += ",addr=0x" + slot
	}
	return s
}

// driver is QEMU's name of a model.
func driver(name string) (string, error) {
	switch name {
	case "virtio-non-transitional", "virtio-transitional":
		return "virtio-net-pci-" + strings.TrimPrefix(name, "virtio-"), nil
	case "virtio":
		return "virtio-net-pci", nil
	case "e1000", "e1000e", "rtl8139", "pcnet", "ne2k_pci":
		return name, nil
	}
	return "", model.Faultf(model.CodeUnsupportedField, "virtio, e1000, e1000e, rtl8139, pcnet or ne2k_pci", "model %q is not known", name)
}
