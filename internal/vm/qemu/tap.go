// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// OpenTap opens a VM's tap in a pod, once per queue, or a macvtap.
func OpenTap(pod *netns.NS, d model.VMDevice) (out []*os.File, err error) {
	if d.OnNode {
		pod = nil // the namespace of this process
	}
	err = pod.Do(func() error {
		if _, err := net.InterfaceByName(d.Target); err != nil {
			return err
		}
		device := tunDevice
		if tap, ok := macvtap.Find(d.Target); ok {
			device = tap.Open
		}
		var err error
		out, err = openTap(d, device)
		return err
	})
	if err == nil {
		return out, nil
	}
	for _, f := range out {
		_ = f.Close()
	}
	hint := "run weft vm phase1 first"
	switch {
	case errors.Is(err, unix.EBUSY):
		hint = "another hypervisor uses it"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = "it belongs to another user, or this process lacks the permissions"
	case errors.Is(err, unix.EINVAL):
		hint = "it has another number of queues, or is not a tap"
	}
	return nil, model.Errorf(model.CodeInvalidEnv, hint, "interface %s: open %s: %w", d.Name, d.Target, err)
}

// openTap opens each queue of a tap.
func openTap(d model.VMDevice, device func() (*os.File, error)) (out []*os.File, err error) {
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if d.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	for range max(d.Queues, 1) {
		f, err := device()
		if err != nil {
			return out, err
		}
		out = append(out, f)
		ifr, err := unix.NewIfreq(d.Target)
		if err != nil {
			return out, err
		}
		ifr.SetUint16(flags)
		if err := unix.IoctlIfreq(int(f.Fd()), unix.TUNSETIFF, ifr); err != nil {
			return out, err
		}
	}
	return out, nil
}

// tunDevice opens the device of taps.
func tunDevice() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}
