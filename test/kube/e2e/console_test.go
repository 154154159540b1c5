// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
)

// runOnConsole executes a command on the console of weft's guest, to which the program connects its standard input and
// output, and returns what the command prints.
func runOnConsole(program *exec.Cmd, command string) (string, error) {
	in, err := program.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := program.StdoutPipe()
	if err != nil {
		return "", err
	}
	var said strings.Builder
	program.Stderr = &said
	if err := program.Start(); err != nil {
		return "", err
	}
	text, err := converse(in, out, command)
	_ = in.Close() // ends the program
	_, _ = io.Copy(io.Discard, out)
	_ = program.Wait() // virtctl fails when its input ends
	if err != nil {
		return "", fmt.Errorf("console: %w: %s", err, said.String())
	}
	return text, nil
}

// converse sends a command with a number of its own, and returns the lines between its begin and its end.
func converse(in io.Writer, out io.Reader, command string) (string, error) {
	id := fmt.Sprint("c", rand.Uint32())
	if _, err := fmt.Fprintf(in, "\n@%s %s\n", id, command); err != nil {
		return "", err
	}
	var text strings.Builder
	begun := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if last, code, ended := strings.Cut(line, "weft-guest: END "+id+" "); ended {
			text.WriteString(last)
			if code != "0" {
				return "", fmt.Errorf("%q exits with %s: %s", command, code, text.String())
			}
			return text.String(), nil
		}
		if begun {
			text.WriteString(line + "\n")
		}
		begun = begun || strings.HasSuffix(line, "weft-guest: BEGIN "+id)
	}
	return "", errors.New("it ended before the command")
}
