// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// Open opens what the hypervisor speaks to the guest through: a tap in a pod, once for each queue, or a macvtap.
func Open(pod *netns.NS, d model.VMDevice) (out []*os.File, err error) {
	if d.OnNode {
		pod = nil // this process's
	}
	err = pod.Do(func() error {
		if _, err := net.InterfaceByName(d.Target); err != nil {
			return err
		}
		if tap, ok := macvtap.Find(d.Target); ok {
			out, err = openMacvtap(d, tap.Number)
			return err
		}
		out, err = openTap(d)
		return err
	})
	if err == nil {
		return out, nil
	}
	for _, f := range out {
		_ = f.Close()
	}
	hint := "weft vm phase1 makes it"
	switch {
	case errors.Is(err, unix.EBUSY):
		hint = "another hypervisor has it"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		hint = "it is another user's, or this one lacks rights"
	case errors.Is(err, unix.EINVAL):
		hint = "it has another number of queues, or is no tap"
	}
	return nil, model.Faultf(model.CodeInvalidEnv, hint, "interface %s: open %s: %w", d.Name, d.Target, err)
}

// openTap opens each queue of a tap.
func openTap(d model.VMDevice) (out []*os.File, err error) {
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if d.Queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	for range max(d.Queues, 1) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return out, err
		}
		out = append(out, os.NewFile(uintptr(fd), d.Target))
		ifr, err := unix.NewIfreq(d.Target)
		if err != nil {
			return out, err
		}
		ifr.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return out, err
		}
	}
	return out, nil
}

// openMacvtap opens a macvtap by a node of its own: /dev/tapN may be another namespace's of the same number.
func openMacvtap(d model.VMDevice, number uint64) (out []*os.File, err error) {
	dir, err := os.MkdirTemp("", "weft-tap-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	node := dir + "/" + d.Target
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(number)); err != nil {
		return nil, fmt.Errorf("make a node for it: %w", err)
	}
	for range max(d.Queues, 1) {
		fd, err := unix.Open(node, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return out, err
		}
		out = append(out, os.NewFile(uintptr(fd), d.Target))
		ifr, err := unix.NewIfreq(d.Target)
		if err != nil {
			return out, err
		}
		flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if d.Queues > 1 {
			flags |= unix.IFF_MULTI_QUEUE
		}
		ifr.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return out, err
		}
	}
	return out, nil
}
