// SPDX-License-Identifier: Apache-2.0

package shim_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
)

// pipe is a pipe of which both ends are non-blocking.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// A runtime that hands in non-blocking streams, writes the configuration late and in pieces and reads the answer late
// gets what every other one gets.
func TestNonBlockingStreams(t *testing.T) {
	bin := build(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	large := strings.Repeat("x", 300<<10) // more than a pipe holds
	agent(t, socket, func(conn *net.UnixConn, r wire.Request, _ []int) {
		_, _ = conn.Write(wire.AppendAnswer(nil, 0, []byte(string(r.Stdin())+large)))
	})
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	// os/exec makes what it hands in blocking.
	pid, err := syscall.ForkExec(bin, []string{bin}, &syscall.ProcAttr{
		Env: []string{"CNI_COMMAND=DEL"}, Files: []uintptr{uintptr(inR), uintptr(outW), null.Fd()},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = syscall.Close(inR), syscall.Close(outW)
	conf := confFor(socket)
	stdin, stdout := os.NewFile(uintptr(inW), "stdin"), os.NewFile(uintptr(outR), "stdout")
	defer func() { _ = stdout.Close() }()
	for _, piece := range []string{conf[:20], conf[20:]} {
		time.Sleep(100 * time.Millisecond)
		if _, err := io.WriteString(stdin, piece); err != nil {
			t.Errorf("stdin: %v", err)
		}
	}
	_ = stdin.Close()
	time.Sleep(200 * time.Millisecond)
	out, err := io.ReadAll(stdout)
	if err != nil {
		t.Error(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	if status.ExitStatus() != 0 || string(out) != conf+large {
		t.Errorf("exit %d, %d bytes of %d: %.200s", status.ExitStatus(), len(out), len(conf+large), out)
	}
}
