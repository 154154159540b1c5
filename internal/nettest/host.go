// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/netns"
)

// hostFD is the file descriptor of the network namespace in which the tests were started.
const hostFD = 3

// NeedHostSysctl skips a test that uses HostSysctl where other programs would notice it, that is everywhere but in the VM
// of make test-vm.
func NeedHostSysctl(t testing.TB, name string) {
	t.Helper()
	if os.Getenv("WEFT_NO_SKIP") == "" {
		Skip(t, "a limit of the whole host is not changed here: "+name)
	}
}

// NeedOwnClock skips the test except in the test VM: the system's clock is that of all processes of the host.
func NeedOwnClock(t testing.TB) {
	t.Helper()
	if os.Getenv("WEFT_VM") == "" {
		Skip(t, "the clock of the whole host is not changed here")
	}
}

// HostSysctl sets a sysctl of the host's network namespace ("net/netfilter/nf_conntrack_max") until the end of the test:
// for limits that count for all namespaces together.
func HostSysctl(t testing.TB, name, value string) {
	t.Helper()
	NeedHostSysctl(t, name)
	host, err := netns.Open(fmt.Sprintf("/proc/self/fd/%d", hostFD))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	path := "/proc/sys/" + name
	var before []byte
	set := func(value string) error {
		return host.Do(func() error { return os.WriteFile(path, []byte(value), 0o644) })
	}
	err = host.Do(func() (err error) {
		before, err = os.ReadFile(path)
		return err
	})
	if err == nil {
		err = set(value)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(strings.TrimSpace(string(before))); err != nil {
			t.Error(err)
		}
	})
}
