// SPDX-License-Identifier: Apache-2.0

package shim_test

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// A standard input that cannot be read is an error that names it. One that is closed is an empty configuration: of an
// agent that is away a DEL is queued as every other one.
func TestUnreadableStdin(t *testing.T) {
	bin := build(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	const closed = ^uintptr(0)
	for name, tt := range map[string]struct {
		stdin uintptr
		want  string
	}{
		"directory": {dir.Fd(), `"code":5,"msg":"stdin: is a directory"`},
		"closed":    {closed, `"code":11,"msg":"weft agent does not answer`},
		"empty":     {null.Fd(), `"code":11,"msg":"weft agent does not answer`},
	} {
		if out, code := forked(t, bin, "ADD", tt.stdin, null.Fd()); code != 1 || !strings.Contains(out, tt.want) {
			t.Errorf("ADD, %s: exit %d, %s", name, code, out)
		}
		out, code := forked(t, bin, "DEL", tt.stdin, null.Fd())
		if name == "directory" && (code != 1 || !strings.Contains(out, tt.want)) || name != "directory" && code != 0 {
			t.Errorf("DEL, %s: exit %d, %s", name, code, out)
		}
	}
}

// forked runs the program with a descriptor as its standard input, which os/exec would replace.
func forked(t *testing.T, bin, verb string, stdin, stderr uintptr) (out string, code int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	pid, err := syscall.ForkExec(bin, []string{bin}, &syscall.ProcAttr{
		Env:   []string{"CNI_COMMAND=" + verb, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_PATH=/x"},
		Files: []uintptr{stdin, w.Fd(), stderr},
	})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(b), status.ExitStatus()
}
