// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/weft-net/weft/internal/state"
)

// makeTapAs makes a tap device in a security context. A device has the context of the process that makes it, and a
// process changes its own only by executing a program: so ip(8) makes the device.
func makeTapAs(l state.Link, a state.TunAttrs) error {
	mode := "tap"
	if a.IP {
		mode = "tun"
	}
	args := []string{"tuntap", "add", "mode", mode, "name", l.Name}
	if a.MultiQueue {
		args = append(args, "multi_queue")
	}
	if a.Owner != nil {
		args = append(args, "user", fmt.Sprint(*a.Owner))
	}
	if a.Group != nil {
		args = append(args, "group", fmt.Sprint(*a.Group))
	}
	program, err := ip()
	if err != nil {
		return fmt.Errorf("create %s: selinux context: %w", l, err)
	}
	runtime.LockOSThread() // the context belongs to this thread, and the programs that it starts
	defer runtime.UnlockOSThread()
	const next = "/proc/thread-self/attr/exec"
	if err := os.WriteFile(next, []byte(a.SELinux), 0); err != nil {
		return fmt.Errorf("create %s: selinux context %q: %w", l, a.SELinux, err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"LC_ALL=C"}
	said, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("create %s: %s: %w: %s", l, program, err, strings.TrimSpace(string(said)))
	}
	return errors.Join(err, os.WriteFile(next, nil, 0)) // reset it for later programs of this thread
}

// ip finds ip(8), which may not be in a runtime's PATH.
func ip() (string, error) {
	if path, err := exec.LookPath("ip"); err == nil {
		return path, nil
	}
	for _, path := range []string{"/usr/sbin/ip", "/sbin/ip"} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("program ip: %w", exec.ErrNotFound)
}
