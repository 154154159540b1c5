// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestWrongInputs checks that a wrong input exits with 2, or with the code after the command line, and prints one message
// with a hint, in the terms of the command line. The file has the command line and the output of each case.
func TestWrongInputs(t *testing.T) {
	b, err := os.ReadFile("testdata/wrong.txt")
	if err != nil {
		t.Fatal(err)
	}
	// Words of cobra, pflag, flag, os, slog, fmt, strconv and net/netip about their own types and functions.
	internals := regexp.MustCompile(
		`strconv|ParseInt|Parse(Addr|Prefix)|arg\(s\)|flag\(s\)|invalid argument|parse error|` +
			`shorthand|invalid syntax|needs an argument|flag provided|netip|time: |slog|\b(open|stat|mkdir|read) /|%!|<nil>|` +
			`\["|map\[|regexp`,
	)
	// A hint is to be typed: it has no placeholder of a usage line, and no list in Go's syntax.
	untyped := regexp.MustCompile(`\bVALUE\b|known: |write -|give `)
	t.Chdir(t.TempDir())
	cases := strings.Split(strings.TrimSpace(string(b)), "\n\n")
	if len(cases) < 100 {
		t.Errorf("%d wrong inputs, want 100 at least", len(cases))
	}
	for _, c := range cases {
		input, want, _ := strings.Cut(c, "\n")
		input, exit, _ := strings.Cut(input, "  # exit code ")
		if exit == "" {
			exit = "2"
		}
		var stdout, stderr bytes.Buffer
		code := run(t, Env{
			Args: strings.Fields(
				strings.TrimPrefix(input, "$ weft "),
			),
			Stdin:  strings.NewReader(""),
			Stdout: &stdout,
			Stderr: &stderr,
		})
		if got := stderr.String(); strconv.Itoa(code) != exit || got != want+"\n" || stdout.Len() > 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr\n%swant\n%s", input, code, stdout.String(), got, want)
		}
		if found := internals.FindString(want); found != "" {
			t.Errorf("%s: %q is not a term of the command line", input, found)
		}
		if _, hint, _ := strings.Cut(want, "\n"); untyped.MatchString(hint) {
			t.Errorf("%s: %q cannot be typed", input, hint)
		}
		if !regexp.MustCompile(`^weft: .+\nhint: .+$`).MatchString(want) {
			t.Errorf("%s: not a message and a hint:\n%s", input, want)
		}
	}
}
