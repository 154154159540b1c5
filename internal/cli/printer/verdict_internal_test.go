// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVerdictWords: verdicts of weft explain, doctor, status and connectivity-test are colored, and no other words.
func TestVerdictWords(t *testing.T) {
	for line, want := range map[string]string{
		"ok    kernel         forwards":             "<g>ok<p>    kernel         forwards",
		"bad: node1: mesh ping: ok":                 "<r>bad<p>: node1: mesh ping: ok",
		"warn  disk           full":                 "<y>warn<p>  disk           full",
		"FAIL  pods           1 of 9 checks, 2.0 s": "<r>FAIL<p>  pods           1 of 9 checks, 2.0 s",
		"  there  blocked  policy         node1":    "  there  <r>blocked<p>  policy         node1",
		"  back   ok       3 hops":                  "  back   <g>ok<p>       3 hops",
		"shop/web to shop/db: blocked":              "shop/web to shop/db: <r>blocked<p>",
		"a to b port 80/tcp: nothing is in the way": "a to b port 80/tcp: <g>nothing is in the way<p>",
		"a to b: may fail":                          "a to b: <y>may fail<p>",
		"skip  vms            none":                 "skip  vms            none",
		"badger/ok is a pod":                        "badger/ok is a pod",
		"  hint: ok":                                "  hint: ok",
		"agents  3 of 3 answer":                     "agents  3 of 3 answer",
	} {
		want = strings.NewReplacer("<g>", green, "<r>", red, "<y>", yellow, "<p>", plain).Replace(want)
		var out bytes.Buffer
		v := newVerdicts(&out)
		for _, part := range []string{line[:1], line[1:], "\n"} { // lines come in parts
			if _, err := v.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != want+"\n" {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// TestNoColor: only a terminal is colored, and none with NO_COLOR.
func TestNoColor(t *testing.T) {
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = control.Close() }()
	if err := unix.IoctlSetPointerInt(int(control.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(control.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	with := func(name, value string) func(string) string {
		return func(s string) string {
			if s == name {
				return value
			}
			return ""
		}
	}
	if _, colored := new(Format).Verdicts(terminal, with("", "")).(*verdicts); !colored {
		t.Error("a terminal is not colored")
	}
	for _, env := range []func(string) string{with("NO_COLOR", "1"), with("TERM", "dumb")} {
		if _, colored := new(Format).Verdicts(terminal, env).(*verdicts); colored {
			t.Error("the terminal is colored")
		}
	}
	if _, colored := (&Format{value: YAML}).Verdicts(terminal, with("", "")).(*verdicts); colored {
		t.Error("a document is colored")
	}
	if _, colored := new(Format).Verdicts(&bytes.Buffer{}, with("", "")).(*verdicts); colored {
		t.Error("a buffer is colored")
	}
}
