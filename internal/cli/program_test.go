// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExecExternal checks that weft executes the program of an external command with the arguments of the command line.
func TestExecExternal(t *testing.T) {
	var path string
	var argv []string
	run := func(failed error, args ...string) (stderr string, code int) {
		var errs bytes.Buffer
		env := Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &errs,
			Getenv: func(string) string { return "" }, Self: "/opt/weft/weft",
			Exec: func(p string, a, _ []string) error {
				path, argv = p, a
				return failed
			},
		}
		code, external := ExecExternal(env)
		if !external {
			t.Errorf("%v is not external", args)
		}
		return errs.String(), code
	}
	for _, c := range []struct {
		args    []string
		program string
		want    []string
	}{
		{[]string{"conformance"}, "cni-conformance", []string{"weft conformance"}},
		{
			[]string{"conformance", "--bin-dir", "x", "-o", "json"},
			"cni-conformance",
			[]string{"weft conformance", "--bin-dir", "x", "-o", "json"},
		},
		{[]string{"conformance", "--", "-x"}, "cni-conformance", []string{"weft conformance", "--", "-x"}},
		{[]string{"conformance", "--help"}, "cni-conformance", []string{"weft conformance", "--help"}},
		{[]string{"help", "conformance"}, "cni-conformance", []string{"weft conformance", "--help"}},
		{[]string{"controller", "--in-cluster"}, "weft-controller", []string{"weft controller", "--in-cluster"}},
		{[]string{"bench", "cni", "-n", "1"}, "weft-bench", []string{"weft bench", "cni", "-n", "1"}},
		{[]string{"help", "bench", "cni"}, "weft-bench", []string{"weft bench", "help", "cni"}},
		{[]string{"__complete", "bench", ""}, "weft-bench", []string{"weft bench", "__complete", ""}},
		{[]string{"agent", "--node", "n1"}, "weft-agent", []string{"weft", "agent", "--node", "n1"}},
		{[]string{"flanneld", "-version"}, "weft-agent", []string{"weft", "flanneld", "-version"}},
		{[]string{"lab", "--dir", "x", "up"}, "weft-lab", []string{"weft", "lab", "--dir", "x", "up"}},
		{[]string{"help", "lab", "up"}, "weft-lab", []string{"weft", "help", "lab", "up"}},
		{[]string{"__completeNoDesc", "lab", "u"}, "weft-lab", []string{"weft", "__completeNoDesc", "lab", "u"}},
		{[]string{"dhcp", "daemon", "-pidfile", "x"}, "weft-plugin", []string{"dhcp", "daemon", "-pidfile", "x"}},
		{[]string{"vm", "phase1", "f"}, "weft-agent", []string{"weft", "vm", "phase1", "f"}},
		{[]string{"vm", "run", "f"}, "weft-lab", []string{"weft", "vm", "run", "f"}},
		{[]string{"help", "vm", "here"}, "weft-agent", []string{"weft", "help", "vm", "here"}},
	} {
		path, argv = "", nil
		stderr, code := run(nil, c.args...)
		if d := cmp.Diff(c.want, argv); d != "" || path != "/opt/weft/"+c.program || stderr != "" || code != 0 {
			t.Errorf("%v: %s, exit code %d, stderr %q, arguments (-want +got):\n%s", c.args, path, code, stderr, d)
		}
	}
	stderr, code := run(syscall.ENOENT, "conformance")
	if code != 1 || !strings.Contains(stderr, "/opt/weft/cni-conformance: no such file") ||
		!strings.Contains(stderr, "hint: install cni-conformance in the directory of weft") {
		t.Errorf("without the program: exit code %d, %s", code, stderr)
	}
}

// TestOwnCommands checks that weft itself runs its own commands, and that help and suggestions name the commands of all
// programs.
func TestOwnCommands(t *testing.T) {
	for _, c := range []struct {
		args, says string
		code       int
	}{
		{"--help", "\n  lab ", 0},
		{"vm --help", "\n  phase1 ", 0},
		{"vm", "\n  phase1 ", 2},
		{"help vm", "\n  run ", 0},
		{"__complete la", "lab\t", 0},
		{"__complete vm ph", "phase1\t", 0},
		{"__complete conf", "conformance\t", 0},
		{"networks", "did you mean `weft bench networks`?", 2},
		{"labb", "did you mean `weft lab`?", 2},
		{"vm phase3", "did you mean `weft vm phase1`?", 2},
		{"help nosuch", `unknown command "nosuch"`, 2},
	} {
		env := Env{Args: strings.Fields(c.args), Self: "/opt/weft/weft", Getenv: func(string) string { return "" }}
		env.Exec = func(path string, argv, _ []string) error {
			t.Errorf("%s: %s is executed, with %q", c.args, path, argv)
			return nil
		}
		var out bytes.Buffer
		env.Stdout, env.Stderr = &out, &out
		_, external := ExecExternal(env)
		if code := Run(t.Context(), env); external || code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("weft %s: exit code %d, want %d and %q in\n%s", c.args, code, c.code, c.says, out.String())
		}
	}
}
