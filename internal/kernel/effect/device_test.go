// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// A user gets the file of a macvtap, unless it is that of another namespace's link with the same index.
func TestOwnDevice(t *testing.T) {
	nettest.Need(t, "macvtap")
	nettest.NeedDevices(t)
	const index, file = "1879048193", "/dev/tap1879048193"
	add := func(name string) (remove func()) {
		ns := nettest.NS(t, name)
		for _, line := range []string{
			"link add low type veth peer name wire", "link add link low name tap0 index " + index + " type macvtap mode bridge",
		} {
			nettest.IP(t, ns, line)
		}
		e := state.Effect{Kind: state.OwnDevice, Space: state.Pod, Link: "tap0", Owner: 107, Group: 108}
		err := Do(t.Context(), ns, nil, e)
		if name == "second" {
			if !errors.Is(err, ErrOtherDevice) && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the same index in a second namespace: %v", err)
			}
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := Do(t.Context(), ns, nil, state.Effect{Kind: state.OwnDevice, Link: "low"}); err == nil ||
			!strings.Contains(err.Error(), "device of macvtap low") {
			t.Errorf("a link that is no macvtap: %v", err)
		}
		return func() { nettest.IP(t, ns, "link del tap0") }
	}
	remove := add("first")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Sys().(*syscall.Stat_t)
	if s.Uid != 107 || s.Gid != 108 || info.Mode().Perm() != 0o600 {
		t.Errorf("%s belongs to %d:%d, mode %v", file, s.Uid, s.Gid, info.Mode())
	}
	add("second")
	remove()
	if _, err := os.Stat(file); err == nil {
		if now, _ := os.Stat(file); now.Sys().(*syscall.Stat_t).Rdev == s.Rdev {
			t.Error("the file of a link that is gone is still there")
		}
	}
}
