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

// mountRun mounts a private /run and /var/lib, where plugins store state.
func mountRun(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/run", "/var/lib"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			nettest.SkipMissing(t, fmt.Sprintf("tmpfs cannot be mounted on %s: %v", dir, err))
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
	}
}

// number returns a count, which an environment variable can override.
func number(name string, fallback int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return fallback
}
