// SPDX-License-Identifier: Apache-2.0

// Package nettest runs tests on the real kernel, in throw-away namespaces. No test of weft touches the host's own
// namespaces.
package nettest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/netns"
)

const insideEnv = "WEFT_NETTEST_INSIDE"

// kernel is the prefix of the reasons for which a test runs in the test VM (test/vm) instead.
const kernel = "kernel: "

// Runner is a testing.M, or a wrapper that checks more after the tests.
type Runner interface{ Run() int }

// Main runs the tests of a package in a fresh network and mount namespace, as uid 0 of a fresh user namespace when the
// caller is not root. Use it as TestMain: os.Exit(nettest.Main(m)).
func Main(m Runner) int { return enter(m, 0) }

// enter runs the tests in new namespaces, with the additional kinds in more.
func enter(m Runner, more uintptr) int {
	if os.Getenv(insideEnv) != "" {
		return runTests(m)
	}
	return spawn(more, os.Stdout, os.Args[1:], insideEnv+"=1")
}

// runDir is the default directory of weft's programs for sockets, journals and queued calls.
const runDir = "/run/weft"

// ownRun mounts a runDir for these tests only, so that packages that are tested in parallel do not share it, and
// nothing remains in the host's. An unprivileged user cannot write there, and needs none.
func ownRun() error {
	if err := os.MkdirAll(runDir, 0o700); errors.Is(err, fs.ErrPermission) {
		return nil
	} else if err != nil {
		return err
	}
	if err := syscall.Mount("weft-tests", runDir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("mount %s: %w", runDir, err)
	}
	return nil
}

// runTests runs the tests in namespaces of their own.
func runTests(m Runner) int {
	syscall.CloseOnExec(hostFD) // programs of tests do not hold it
	if err := ownRun(); err != nil {
		fmt.Fprintln(os.Stderr, "nettest:", err)
		return 2
	}
	return m.Run()
}

// spawn runs this program with other arguments in new namespaces.
func spawn(more uintptr, out io.Writer, args []string, env ...string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nettest:", err)
		return 2
	}
	cmd := exec.Command(self, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	host, err := os.Open("/proc/self/ns/net")
	if err != nil {
		fmt.Fprintln(os.Stderr, "nettest:", err)
		return 2
	}
	defer func() { _ = host.Close() }()
	cmd.ExtraFiles = []*os.File{host} // hostFD
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	} else {
		attr.Unshareflags = syscall.CLONE_NEWNS // makes the mount tree private as well
		attr.Cloneflags &^= syscall.CLONE_NEWNS
	}
	attr.Cloneflags |= more
	cmd.SysProcAttr = attr
	// Pdeathsig refers to the parent's thread, which must not end before the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		note(filepath.Base(self),
			fmt.Sprintf("this host refuses namespaces to an ordinary user, nothing was tested: %v", err))
		fmt.Fprintf(os.Stderr, "nettest: SKIP: this host refuses namespaces to an ordinary user, nothing was tested: %v\n",
			err)
		return 0
	}
	return 0
}

// NS makes a namespace, bound to a path below t.TempDir(), and removes it at the end of the test.
func NS(t testing.TB, name string) *netns.NS {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	ns, err := netns.New(path)
	if err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = ns.Close()
		if err := netns.Remove(path); err != nil {
			t.Errorf("remove namespace: %v", err)
		}
	})
	return ns
}

// Run runs a command inside a namespace (nil: the test's own) and returns what it prints. It fails the test when the
// command fails.
func Run(t testing.TB, ns *netns.NS, argv ...string) string {
	t.Helper()
	out, err := Try(ns, argv...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// Try is Run without failing the test.
func Try(ns *netns.NS, argv ...string) (string, error) {
	out, err := try(ns, argv)
	// A concurrent change, even in another namespace, makes the kernel interrupt the dump that ip lists.
	for tries := 0; tries < 50 && err == nil && strings.Contains(out, "Dump was interrupted"); tries++ {
		out, err = try(ns, argv)
	}
	if err == nil {
		// ip prints this occasionally for a link whose other end is in an unnamed namespace.
		out = strings.ReplaceAll(out, "Error: Peer netns reference is invalid.\n", "")
	}
	return out, err
}

func try(ns *netns.NS, argv []string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var b strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := ns.Do(cmd.Start); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return b.String(), err
}

// Skip skips the test and reports it, or fails it when WEFT_NO_SKIP is set.
func Skip(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("WEFT_NO_SKIP") != "" {
		t.Fatalf("WEFT_NO_SKIP is set, but: %s", why)
	}
	SkipMissing(t, kernel+why)
}

// SkipMissing skips the test and reports it, because something is missing that is not a part of the kernel: a program,
// another user.
func SkipMissing(t testing.TB, why string) {
	t.Helper()
	note(t.Name(), why)
	t.Skipf("SKIP: %s", why)
}

// note writes a skip to the file WEFT_SKIPS: "go test" does not print the output of a package that passes, and a skip
// must not go unnoticed.
func note(what, why string) {
	path := os.Getenv("WEFT_SKIPS")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nettest:", err)
		return
	}
	defer func() { _ = f.Close() }()
	var pkg string
	if info, ok := debug.ReadBuildInfo(); ok {
		pkg = strings.TrimSuffix(strings.TrimPrefix(info.Path, info.Main.Path+"/"), ".test")
	}
	fmt.Fprintf(f, "%s %s: %s\n", pkg, what, strings.ReplaceAll(why, "\n", " "))
}
