// SPDX-License-Identifier: Apache-2.0

// Package scripts_test runs the scripts in its directory, which test the command line.
//
// A script is a *.txt file in the form of rogpeppe/go-internal's testscript: "exec" runs a program, "!" expects it to
// fail, "stdout" and "stderr" match its output; "code N" expects the exit code N. weft, the CNI binary directory
// $CNI_BIN and $EXAMPLES are available; each script runs in an empty directory, in the network namespace of the test
// run. The conditions "tap" and "ipip" report whether such devices can be created.
package scripts_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

func TestScripts(t *testing.T) {
	bin := nettest.Programs(t)
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	// Socket paths are short, the temporary directories of Go tests are not.
	short, err := os.MkdirTemp("", "ws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	testscript.Run(t, testscript.Params{
		Dir:                 ".",
		WorkdirRoot:         short,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"code": code},
		Condition: func(name string) (bool, error) {
			switch name {
			case "tap":
			case "ipip": // created in the namespace of the test run and deleted
				err := exec.Command("ip", "link", "add", "weft-probe", "type", "ipip", "local", "127.0.0.1", "remote",
					"127.0.0.2").Run()
				if err != nil {
					return false, nil
				}
				return true, exec.Command("ip", "link", "del", "weft-probe").Run()
			default:
				return false, fmt.Errorf("condition %q is not known", name)
			}
			f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
			if err == nil {
				err = f.Close()
			}
			return err == nil, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("CNI_BIN", filepath.Join(bin, "cni"))
			env.Setenv("EXAMPLES", examples)
			env.Setenv("LAB", filepath.Join(short, filepath.Base(env.WorkDir)[len("script-"):]))
			env.Defer(func() {
				unmount(env.WorkDir) // mounts that a failed script has left
				_ = os.RemoveAll(env.WorkDir)
			})
			return nil
		},
	})
}

// code runs a program that must exit with a code: code N PROGRAM [ARG…].
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM [ARG…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

// unmount unmounts everything below a directory.
func unmount(dir string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			_ = syscall.Unmount(f[1], syscall.MNT_DETACH)
		}
	}
}
