// SPDX-License-Identifier: Apache-2.0

package leaks_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// ownRun gives the test a /run and a /var/lib of its own, where plugins keep what they have to remember.
func ownRun(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			nettest.Without(t, fmt.Sprintf("tmpfs cannot be mounted on %s: %v", dir, err))
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

// number is a count that the environment can make larger.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return usual
}
