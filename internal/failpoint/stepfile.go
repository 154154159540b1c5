// SPDX-License-Identifier: Apache-2.0

//go:build weftsteps

package failpoint

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// FromFile returns the Hook of a program that is built for tests: the file contains a number that is decremented at every
// failpoint; at zero the file is deleted and the process killed. Without a path there is no Hook.
func FromFile(path string, stderr io.Writer) Hook {
	if path == "" {
		return nil
	}
	var mu sync.Mutex
	return func(name string) error {
		mu.Lock()
		defer mu.Unlock()
		b, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		left, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return nil
		}
		if left > 0 {
			return os.WriteFile(path, []byte(strconv.Itoa(left-1)), 0o600)
		}
		_ = os.Remove(path)
		fmt.Fprintln(stderr, "killed at failpoint:", name)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}
