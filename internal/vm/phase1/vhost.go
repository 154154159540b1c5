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

// VhostNet is the device by which the kernel moves a guest's packets itself.
const VhostNet = "/dev/vhost-net"

// setOwner is VHOST_SET_OWNER: what fails where the device is there and cannot be used.
const setOwner = 0xaf01

// UsableVhost tells the number of the node's device, found by using it; ok is false where there is none that can be
// used.
func UsableVhost() (number uint64, ok bool) {
	fd, err := unix.Open(VhostNet, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), setOwner, 0); errno != 0 {
		return 0, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, false
	}
	return st.Rdev, true
}

const vhostName = "vhost-net"

// give gives the machine's user the devices: the node's vhost-net, where it has one, and those of macvtaps.
func (w *work) give() error {
	if w.Root == "" || len(w.record.Networks) == 0 {
		return nil
	}
	probe := w.Vhost
	if probe == nil {
		probe = UsableVhost
	}
	if number, ok := probe(); ok {
		if err := w.giveOne(vhostName, number, &w.record.Vhost); err != nil {
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
		if err := w.giveOne(tap.Name, tap.Number, &n.Tap); err != nil {
			return err
		}
	}
	return nil
}

// giveOne gives one device; what was there before is remembered in given, which is of the record.
func (w *work) giveOne(name string, number uint64, given **Given) error {
	fail := func(err error) error {
		return model.Faultf(model.CodeIO, "", "machine %s: /dev/%s for user %d in %s: %w", w.record.Machine, name,
			w.record.Owner, w.Root, err)
	}
	dir, at, err := devices(w.Root)
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
		return fail(errors.New("something else has that name"))
	default:
		at.UID, at.GID, at.Mode = st.Uid, st.Gid, st.Mode&^unix.S_IFMT
	}
	if old := *given; old == nil || old.Dev != at.Dev || old.Ino != at.Ino || old.Name != at.Name {
		// else it was given before
		*given = &at
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
	if err := own(dir, name, w.record.Owner, w.record.Owner, 0o600); err != nil {
		return fail(err)
	}
	return nil
}

// withdraw takes a device back, if the container is still there.
func (w *work) withdraw(g *Given) error {
	if g == nil {
		return nil
	}
	dir, now, err := devices(g.Root)
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
		err = own(dir, name, g.UID, g.GID, g.Mode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("machine %s: /dev/%s in %s: %w", w.record.Machine, name, g.Root, err)
	}
	return nil
}

// devices opens the directory of devices below a root directory. What stands there is the container's to choose: no
// link leads out of it.
func devices(root string) (fd int, at Given, err error) {
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
	return fd, Given{Root: root, Dev: st.Dev, Ino: st.Ino}, nil
}

// own gives the device to a user.
func own(dir int, name string, uid, gid, mode uint32) error {
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
		return errors.New("something else has its name")
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	return errors.Join(unix.Chmod(path, mode), unix.Chown(path, int(uid), int(gid)))
}
