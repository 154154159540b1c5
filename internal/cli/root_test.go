// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"testing"
)

// TestUsageExitCode checks the exit code of usage errors.
func TestUsageExitCode(t *testing.T) {
	for _, args := range [][]string{{"nosuch"}, {"mesh", "--nosuch"}, {"vm", "here"}, {"ipam", "check", "more"}} {
		env := Env{Args: args, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
		if code := run(t, env); code != 2 {
			t.Errorf("weft %v: exit code %d, want 2", args, code)
		}
	}
}
