// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"testing"
)

// What is wrong with the command line itself ends with 2, as the documents say.
func TestUsageExitCode(t *testing.T) {
	for _, args := range [][]string{{"nosuch"}, {"mesh", "--nosuch"}, {"vm", "here"}, {"ipam", "check", "more"}} {
		env := Env{Args: args, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }}
		if code := run(t, env); code != 2 {
			t.Errorf("weft %v: exit code %d, want 2", args, code)
		}
	}
}
