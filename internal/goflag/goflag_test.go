// SPDX-License-Identifier: Apache-2.0

package goflag_test

import (
	"flag"
	"io"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/goflag"
)

// TestError checks the message and the hint for each error of package flag.
func TestError(t *testing.T) {
	for args, want := range map[string]string{
		"-nosuch":                      "unknown flag -nosuch\nhint: `x --help` lists the flags",
		"--nosuch":                     "unknown flag -nosuch\nhint: `x --help` lists the flags",
		"-=3":                          "\"-=3\" is not a flag\nhint: `x --help` lists the flags",
		"-timeout":                     "-timeout has no value\nhint: for example -timeout 10s",
		"-file":                        "-file has no value\nhint: `x --help` lists the flags",
		"-timeout=x":                   "-timeout \"x\" is not a duration with a unit (ms, s, m or h)\nhint: for example -timeout 10s",
		"-count=x":                     "-count \"x\" is not a whole number\nhint: for example -count 5",
		"-count=999999999999999999999": "-count \"999999999999999999999\" is out of range\nhint: for example -count 5",
		"-port=-1":                     "-port \"-1\" is not a whole number, 0 or more\nhint: for example -port 0",
		"-ratio=x":                     "-ratio \"x\" is not a number\nhint: for example -ratio 0.5",
		"-on=maybe":                    "-on \"maybe\" is not true or false\nhint: for example -on=true",
	} {
		f := flag.NewFlagSet("x", flag.ContinueOnError)
		f.SetOutput(io.Discard)
		f.Duration("timeout", 10*time.Second, "")
		f.Int("count", 5, "")
		f.Uint("port", 0, "")
		f.Float64("ratio", 0.5, "")
		f.Bool("on", false, "")
		f.String("file", "", "")
		err := f.Parse([]string{args})
		if err == nil {
			t.Errorf("%s: accepted", args)
			continue
		}
		if got := goflag.Message(goflag.Error("x", f, err)); got != want {
			t.Errorf("%s: %s\nwant %s", args, got, want)
		}
	}
}
