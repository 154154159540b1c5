// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A command of a program beside weft becomes that program, which has the arguments as they were given.
func TestProgramBeside(t *testing.T) {
	var path string
	var argv []string
	run := func(failed error, args ...string) (stderr string, code int) {
		var errs bytes.Buffer
		code = Run(context.Background(), Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs,
			Getenv: func(string) string { return "" }, Self: "/opt/weft/weft",
			Exec: func(p string, a, _ []string) error {
				path, argv = p, a
				return failed
			},
		})
		return errs.String(), code
	}
	for _, c := range []struct{ args, want []string }{
		{[]string{"conformance"}, nil},
		{[]string{"conformance", "--bin-dir", "x", "-o", "json"}, []string{"--bin-dir", "x", "-o", "json"}},
		{[]string{"conformance", "--", "-x"}, []string{"--", "-x"}},
		{[]string{"conformance", "--help"}, []string{"--help"}},
		{[]string{"help", "conformance"}, []string{"--help"}},
	} {
		path, argv = "", nil
		stderr, code := run(nil, c.args...)
		if d := cmp.Diff(append([]string{"weft conformance"}, c.want...), argv); d != "" || path != "/opt/weft/cni-conformance" || stderr != "" || code != 0 {
			t.Errorf("%v: %s, exit code %d, stderr %q, arguments (-want +got):\n%s", c.args, path, code, stderr, d)
		}
	}
	stderr, code := run(syscall.ENOENT, "conformance")
	if code != 1 || !strings.Contains(stderr, "/opt/weft/cni-conformance: no such file") || !strings.Contains(stderr, "hint: install cni-conformance beside weft") {
		t.Errorf("without the program: exit code %d, %s", code, stderr)
	}
}
