// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudoterminal.
func openTerminal(t *testing.T) (control, terminal *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Close() })
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return control, terminal
}

// TestLine: the line appears on a terminal, is removed before other output, comes back, and is gone at the end.
func TestLine(t *testing.T) {
	control, terminal := openTerminal(t)
	if !Terminal(terminal) {
		t.Fatal("a pseudoterminal is no terminal")
	}
	screen := bufio.NewReader(control)
	seconds := regexp.MustCompile(`\([0-9]+s\)$`)
	until := func(want string) string {
		t.Helper()
		var got strings.Builder
		for !strings.HasSuffix(seconds.ReplaceAllString(got.String(), "(0s)"), want) {
			b, err := screen.ReadByte()
			if err != nil {
				t.Fatalf("%v: %q, want %q", err, got.String(), want)
			}
			got.WriteByte(b)
		}
		return got.String()
	}
	l := start(terminal, "waiting for node1", Terminal(terminal), 0, time.Millisecond)
	until(erase + "weft: waiting for node1 (0s)")
	fmt.Fprintln(l, "a message")
	if got := until("a message\r\n"); !strings.HasSuffix(got, erase+"a message\r\n") {
		t.Errorf("the line is not removed before a message: %q", got)
	}
	until(erase + "weft: waiting for node1 (0s)")
	l.Logf("creating %d nodes", 3)
	if got := until("weft: creating 3 nodes\r\n"); !strings.HasSuffix(got, erase+"weft: creating 3 nodes\r\n") {
		t.Errorf("the line is not removed before a message: %q", got)
	}
	until(erase + "weft: creating 3 nodes (0s)")
	l.Stop()
	fmt.Fprintln(terminal, "done")
	if got := until("done\r\n"); !strings.HasSuffix(got, erase+"done\r\n") {
		t.Errorf("the line is left: %q", got)
	}
	l.Stop()
}

// TestSilent: a short wait shows nothing on a terminal.
func TestSilent(t *testing.T) {
	var out bytes.Buffer
	l := start(&out, "waiting for node1", true, time.Hour, time.Millisecond)
	for range 3 {
		l.show(time.Hour)
	}
	l.Stop()
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
}

// TestNoTerminal: pipes, files and other writers get the messages only, also if a command waits for long.
func TestNoTerminal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, out := range []io.Writer{w, &bytes.Buffer{}, nil} {
		if Terminal(out) {
			t.Errorf("%T is a terminal", out)
		}
	}
	l := start(w, "waiting for node1", Terminal(w), 0, time.Nanosecond)
	l.Logf("creating nodes")
	l.Set("waiting for node2")
	l.Stop()
	_ = w.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "weft: creating nodes\n" {
		t.Errorf("%v %q", err, got)
	}
}
