// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"bytes"
	"io"
	"regexp"

	"github.com/weft-net/weft/internal/cli/progress"
)

// Colors of verdicts (ECMA-48, SGR). Words say the same: color helps to find the bad one of many lines.
const (
	red, green, yellow = "\x1b[31m", "\x1b[32m", "\x1b[33m"
	plain              = "\x1b[0m"
)

// verdictPattern matches the verdict of a line: its first word, or the one after a direction of weft explain, or its end.
const verdictPattern = `^(?: {2}(?:there|back ) {2})?(ok|FAIL|bad|warn|blocked|suspect)(?::| |$)|: (nothing is in the way|may fail|blocked)$`

// color returns the color of a verdict.
func color(word string) string {
	switch word {
	case "ok", "nothing is in the way":
		return green
	case "warn", "suspect", "may fail":
		return yellow
	}
	return red
}

// Verdicts returns a writer that colors the verdict of each line, if w is a terminal, and NO_COLOR (https://no-color.org)
// is not set. Documents for programs have no colors.
func (f *Format) Verdicts(w io.Writer, getenv func(string) string) io.Writer {
	if f.Document() || !progress.Terminal(w) || getenv == nil || getenv("NO_COLOR") != "" || getenv("TERM") == "dumb" {
		return w
	}
	return newVerdicts(w)
}

// verdicts colors whole lines, and keeps the beginning of one that is not complete.
type verdicts struct {
	w       io.Writer
	pattern *regexp.Regexp
	rest    []byte
}

func newVerdicts(w io.Writer) *verdicts {
	return &verdicts{w: w, pattern: regexp.MustCompile(verdictPattern)}
}

// Write writes the complete lines.
func (v *verdicts) Write(p []byte) (int, error) {
	v.rest = append(v.rest, p...)
	end := bytes.LastIndexByte(v.rest, '\n')
	if end < 0 {
		return len(p), nil
	}
	var out bytes.Buffer
	for line := range bytes.Lines(v.rest[:end+1]) {
		line = line[:len(line)-1]
		if at := v.pattern.FindSubmatchIndex(line); at != nil {
			from, to := at[2], at[3]
			if from < 0 {
				from, to = at[4], at[5]
			}
			word := line[from:to]
			out.Write(line[:from])
			out.WriteString(color(string(word)))
			out.Write(word)
			out.WriteString(plain)
			line = line[to:]
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	v.rest = append([]byte(nil), v.rest[end+1:]...)
	if _, err := v.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
