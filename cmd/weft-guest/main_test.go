// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestWrongInputs checks the exit code, the message and the hint for wrong command lines.
func TestWrongInputs(t *testing.T) {
	const list = "\nhint: `weft-guest --help` lists the flags\n"
	for args, want := range map[string]string{
		"--nosuch":          "weft-guest: unknown flag -nosuch" + list,
		"more":              `weft-guest: unexpected argument "more"` + list,
		"--socket":          "weft-guest: -socket has no value\nhint: for example -socket @weft-guest\n",
		"-dhcp-started-dir": "weft-guest: -dhcp-started-dir has no value" + list,
	} {
		var stderr bytes.Buffer
		code := exitCode(run(t.Context(), strings.Fields(args), &stderr), &stderr)
		if code != 2 || stderr.String() != want {
			t.Errorf("weft-guest %s: exit code %d, %s\nwant %s", args, code, stderr.String(), want)
		}
	}
}

// TestHelp checks that help has a description, examples and the flags, and is no error.
func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	code := exitCode(run(t.Context(), []string{"--help"}, &stderr), &stderr)
	for _, part := range []string{"Serves DHCP", "Examples:\n  weft-guest\n", "-dhcp-started-dir DIR"} {
		if !strings.Contains(stderr.String(), part) || code != 0 {
			t.Errorf("exit code %d, no %q in\n%s", code, part, stderr.String())
		}
	}
}
