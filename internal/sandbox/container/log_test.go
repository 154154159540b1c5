// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLogRoundTrip: the log lines contain exactly the container's output.
func TestLogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "\n", "b c", strings.Repeat("x", maxLine), "\n\n", "é\t"}), 0,
			12).Draw(t, "text")
		in := strings.Join(text, "")
		var out bytes.Buffer
		l := &logFile{w: &out}
		<-l.follow(strings.NewReader(in), strings.NewReader(""))
		var back strings.Builder
		for line := range strings.Lines(out.String()) {
			p, err := ParseLogLine(strings.TrimSuffix(line, "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if p.Stream != "stdout" || len(p.Text) > maxLine {
				t.Fatalf("line %.60q", line)
			}
			back.WriteString(p.Text)
			if !p.Partial {
				back.WriteByte('\n')
			}
		}
		if back.String() != in {
			t.Fatalf("wrote %.80q, read %.80q", in, back.String())
		}
	})
}

func TestParseLogLine(t *testing.T) {
	good := "2016-10-06T00:17:09.669794202Z stdout P:tag log content 1"
	l, err := ParseLogLine(good)
	if err != nil || !l.Partial || l.Text != "log content 1" || l.Time.Nanosecond() != 669794202 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{
		"", "x", "2016-10-06T00:17:09Z stdout", "yesterday stdout F x", "2016-10-06T00:17:09Z stdin F x",
	} {
		if _, err := ParseLogLine(bad); err == nil {
			t.Errorf("%q passed", bad)
		}
	}
}

func FuzzParseLogLine(f *testing.F) {
	f.Add("2016-10-06T00:17:09.669794202Z stdout F x")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = ParseLogLine(s) })
}
