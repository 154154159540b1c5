// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const programsEnv = "WEFT_NETTEST_PROGRAMS"

// MainWithPrograms is Main for packages whose tests run weft's own programs: it builds them first, as the caller's
// user, and removes them afterwards. Programs returns their directory. The tests have a PID namespace of their own too,
// so that no agent and no pod outlives them, however they end.
func MainWithPrograms(m *testing.M) int {
	if os.Getenv(insideEnv) != "" {
		if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
			""); err != nil {
			fmt.Fprintln(os.Stderr, "nettest: mount /proc:", err)
			return 2
		}
		return runTests(m)
	}
	if dir := os.Getenv("WEFT_PROGRAMS"); dir != "" { // the test VM has no Go to build them with
		if err := os.Setenv(programsEnv, dir); err != nil {
			fmt.Fprintln(os.Stderr, "nettest:", err)
			return 2
		}
		return enter(m, syscall.CLONE_NEWPID)
	}
	dir, err := os.MkdirTemp("", "weft-programs-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		err = build(dir)
	}
	if err == nil {
		err = os.Setenv(programsEnv, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nettest: build weft:", err)
		return 2
	}
	return enter(m, syscall.CLONE_NEWPID)
}

// Programs returns a directory with all programs of weft, guest-tools, and cni, a CNI binary directory.
func Programs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(programsEnv)
	if dir == "" {
		t.Fatal("nettest: TestMain must call MainWithPrograms")
	}
	return dir
}

// Program puts one of weft's programs at a path: a copy from WEFT_PROGRAMS, or newly built.
func Program(t testing.TB, name, to string) {
	t.Helper()
	if dir := os.Getenv("WEFT_PROGRAMS"); dir != "" {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(to, b, 0o755)
		}
		if err != nil {
			t.Fatalf("nettest: %v", err)
		}
		return
	}
	if _, err := exec.LookPath("go"); err != nil {
		Skip(t, name+" cannot be built here: "+err.Error())
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", to, "github.com/weft-net/weft/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nettest: build %s: %v\n%s", name, err, out)
	}
}

// StepProgram builds one of weft's programs with the failpoints of failpoint.FromFile.
func StepProgram(t testing.TB, name, to string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		Skip(t, name+" cannot be built here: "+err.Error())
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "weftsteps,grpcnotrace", "-o", to,
		"github.com/weft-net/weft/cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nettest: build %s: %v\n%s", name, err, out)
	}
}

func build(dir string) error {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", dir+"/", "./cmd/...", "./test/guest-tools")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "cni"), 0o755); err != nil {
		return err
	}
	list, err := exec.Command(filepath.Join(dir, "weft-plugin"), "--list").Output()
	if err != nil {
		return fmt.Errorf("weft-plugin --list: %w", err)
	}
	links := map[string]string{"weft-cni": "weft-cni"}
	for name := range strings.FieldsSeq(string(list)) {
		links[name] = "weft-plugin"
	}
	for name, program := range links {
		if err := os.Symlink("../"+program, filepath.Join(dir, "cni", name)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o755)
}
