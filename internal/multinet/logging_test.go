// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseLogging: the keys for the log have Multus' defaults, and one that is invalid leaves the others.
func TestParseLogging(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/log"), 0o755); err != nil {
		t.Fatal(err)
	}
	def := Logging{Stderr: true, MaxAge: 5, MaxSize: 100, MaxBackups: 5, Compress: true}
	with := func(change func(*Logging)) Logging {
		l := def
		change(&l)
		return l
	}
	for _, tc := range []struct {
		conf string
		want Logging
		err  string
	}{
		{`{"delegates":[]}`, def, ""},
		{`{"logFile":"/var/log/m.log"}`, def, ""},
		{`{"logLevel":"Debug","logFile":"/host/var/log/m.log","logToStderr":false}`, with(func(l *Logging) {
			l.Level, l.File, l.Stderr = LogDebug, filepath.Join(root, "var/log/m.log"), false
		}), ""},
		{
			`{"logLevel":"error","logOptions":{"maxAge":0,"maxSize":0,"maxBackups":0,"compress":false}}`,
			Logging{Level: LogError, Stderr: true, MaxSize: 100}, "",
		},
		{`{"logLevel":"loud","logFile":"/m"}`, with(func(l *Logging) { l.File = filepath.Join(root, "m") }), `logLevel: "loud" is none of panic, error`},
		{`{"logLevel":"debug","logFile":"m"}`, with(func(l *Logging) { l.Level = LogDebug }), `logFile: "m" is not absolute`},
		{`{"logLevel":"debug","logOptions":{"maxSize":-1,"maxAge":9}}`, with(func(l *Logging) {
			l.Level, l.MaxAge = LogDebug, 9
		}), "logOptions.maxSize: -1 is less than 0"},
		{`{"logLevel":"debug","logToStderr":"no","logFile":"/m"}`, with(func(l *Logging) {
			l.Level, l.File = LogDebug, filepath.Join(root, "m")
		}), "logToStderr"},
		{`{"delegates":[{"logLevel":"debug"}]}`, def, ""},
	} {
		have, err := ParseLogging([]byte(tc.conf), root)
		if d := cmp.Diff(tc.want, have); d != "" {
			t.Errorf("%s: %s", tc.conf, d)
		}
		if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", tc.conf, err, tc.err)
		}
	}
}
