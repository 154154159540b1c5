// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/macvtap"
)

// VhostNet is the device for in-kernel virtio-net processing.
const VhostNet = "/dev/vhost-net"

// vhostSetOwner is VHOST_SET_OWNER, which fails if vhost-net exists but cannot be used.
const vhostSetOwner = 0xaf01

// UsableVhost returns the device number of vhost-net, after a test that it works; ok is false if it does not.
func UsableVhost() (number uint64, ok bool) {
	fd, err := unix.Open(VhostNet, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), vhostSetOwner, 0); errno != 0 {
		return 0, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false
	}
	return st.Rdev, true
}

const vhostName = "vhost-net"

// grantDevices grants the hypervisor's user vhost-net, if the node has it, and the devices of macvtaps.
func (w *call) grantDevices() error {
	if w.Root == "" || len(w.record.Networks) == 0 {
		return nil
	}
	probe := w.Vhost
	if probe == nil {
		probe = UsableVhost
	}
	if number, ok := probe(); ok {
		if err := w.grantDevice(vhostName, number, &w.record.Vhost); err != nil {
			return err
		}
	}
	for i := range w.record.Networks {
		n := &w.record.Networks[i]
		if n.Interface.Binding != model.VMMacvtap {
			continue
		}
		var tap macvtap.Device
		var ok bool
		if err := w.spaces.PodNS.Do(func() error { tap, ok = macvtap.Find(n.Device.Target); return nil }); err != nil {
			return err
		}
		if !ok {
			continue
		}
		if err := w.grantDevice(tap.Name, tap.Number, &n.Tap); err != nil {
			return err
		}
	}
	return nil
}

// grantDevice grants one device. It stores the previous state in granted, which is part of the record.
func (w *call) grantDevice(name string, number uint64, granted **GrantedDevice) error {
	fail := func(err error) error {
		return model.Errorf(model.CodeIO, "", "VM %s: /dev/%s for user %d in %s: %w", w.record.VM, name,
			w.record.Owner, w.Root, err)
	}
	dir, at, err := openDev(w.Root)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(dir) }()
	if name != vhostName {
		at.Name = name
	}
	var st unix.Stat_t
	err = unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		at.Made = true
	case err != nil:
		return fail(err)
	case st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != number:
		return fail(errors.New("another file has that name"))
	default:
		at.UID, at.GID, at.Mode = st.Uid, st.Gid, st.Mode&^unix.S_IFMT
	}
	if old := *granted; old == nil || old.Dev != at.Dev || old.Ino != at.Ino || old.Name != at.Name {
		// else it is granted already
		*granted = &at
		if err := w.save("device"); err != nil {
			return err
		}
	}
	if at.Made {
		if err := unix.Mknodat(dir, name, unix.S_IFCHR|0o600, int(number)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fail(err)
		}
	}
	if err := w.Step.At("owner"); err != nil {
		return err
	}
	if err := setOwner(dir, name, w.record.Owner, w.record.Owner, 0o600); err != nil {
		return fail(err)
	}
	return nil
}

// withdraw revokes a granted device if the container still exists.
func (w *call) withdraw(g *GrantedDevice) error {
	if g == nil {
		return nil
	}
	dir, now, err := openDev(g.Root)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(dir) }()
	if now.Dev != g.Dev || now.Ino != g.Ino {
		return nil
	}
	name := cmp.Or(g.Name, vhostName)
	if g.Made {
		err = unix.Unlinkat(dir, name, 0)
	} else {
		err = setOwner(dir, name, g.UID, g.GID, g.Mode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("VM %s: /dev/%s in %s: %w", w.record.VM, name, g.Root, err)
	}
	return nil
}

// openDev opens the directory dev below a root directory. The container controls its content, so symlinks are not
// followed.
func openDev(root string) (fd int, at GrantedDevice, err error) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, at, err
	}
	defer func() { _ = unix.Close(top) }()
	fd, err = unix.Openat2(top, "dev", &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, at, fmt.Errorf("dev: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, at, err
	}
	return fd, GrantedDevice{Root: root, Dev: st.Dev, Ino: st.Ino}, nil
}

// setOwner sets the owner and mode of the device.
func setOwner(dir int, name string, uid, gid, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return errors.New("another file has its name")
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	return errors.Join(unix.Chmod(path, mode), unix.Chown(path, int(uid), int(gid)))
}
