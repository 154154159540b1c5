// SPDX-License-Identifier: Apache-2.0

package foreign_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/foreign"
	"github.com/weft-net/weft/internal/model"
)

// plugin writes a shell script that acts as a plugin and returns its directory.
func plugin(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func call(dir, verb string) foreign.Call {
	return foreign.Call{Verb: verb, Type: "other", Conf: []byte(`{"a":1}`), Request: model.Request{
		ContainerID: "c", Netns: "/ns", IfName: "eth0", Args: [][2]string{{"K", "V"}, {"L", "W"}},
		CNIPath: []string{"/nowhere", dir},
	}}
}

func TestEnvironmentAndStdin(t *testing.T) {
	dir := plugin(t, `cat; env | grep -E '^(CNI_|MINE)' | sort; echo words >&2`)
	var stderr bytes.Buffer
	r := &foreign.Runner{
		Env: []string{"PATH=" + os.Getenv("PATH"), "MINE=1", "CNI_OTHER=x", "CNI_COMMAND=VERSION"}, Stderr: &stderr,
	}
	out, err := r.Run(t.Context(), call(dir, "ADD"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"a":1}CNI_ARGS=K=V;L=W
CNI_COMMAND=ADD
CNI_CONTAINERID=c
CNI_IFNAME=eth0
CNI_NETNS=/ns
CNI_PATH=/nowhere:` + dir + "\nMINE=1\n"
	if string(out) != want || stderr.String() != "words\n" {
		t.Errorf("stdout %s\nstderr %s", out, &stderr)
	}
	out, err = r.Run(t.Context(), call(dir, "GC"))
	if err != nil || strings.Contains(string(out), "CNI_NETNS") {
		t.Errorf("GC is about no container: %s %v", out, err)
	}
}

func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		code   model.Code
		msg    string
	}{
		"error object": {
			`echo '{"code":42,"msg":"no luck","details":"buy more"}'; exit 1`, 42, "plugin other ADD: no luck",
		},
		"without object":  {`echo broken pipe dream >&2; exit 3`, model.CodeForeign, "exit status 3: broken pipe dream"},
		"too much output": {`head -c 2000000 /dev/zero`, model.CodeDecode, "longer than"},
		"too slow":        {`sleep 60 & sleep 60`, model.CodeTryAgain, "no answer in time"},
		"no program":      {"", model.CodeForeign, "plugin other ADD"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := plugin(t, tt.script)
			if tt.script == "" {
				if err := os.WriteFile(filepath.Join(dir, "other"), []byte("\x7fELFnot"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			r := &foreign.Runner{Env: os.Environ(), Timeout: 300 * time.Millisecond}
			if name != "too slow" {
				r.Timeout = 10 * time.Second
			}
			start := time.Now()
			_, err := r.Run(t.Context(), call(dir, "ADD"))
			var f *model.Error
			if !errors.As(err, &f) || f.Code != tt.code || !strings.Contains(f.Msg, tt.msg) {
				t.Errorf("%v", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestMissingProgram(t *testing.T) {
	r := &foreign.Runner{}
	_, err := r.Run(context.Background(), foreign.Call{
		Verb: "ADD", Type: "nobody", Request: model.Request{CNIPath: []string{"/a", "/b"}},
	})
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeInvalidConf || !strings.Contains(f.Msg, `"nobody"`) ||
		!strings.Contains(f.Msg, "/a:/b") {
		t.Errorf("%v", err)
	}
	if _, err := r.Find("../../bin/sh", []string{"/a"}); err == nil {
		t.Error("a path is no type")
	}
}

// A program that is still being written is tried again.
func TestTextFileBusy(t *testing.T) {
	dir := plugin(t, `echo ok`)
	f, err := os.OpenFile(filepath.Join(dir, "other"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = f.Close() })
	out, err := (&foreign.Runner{Env: os.Environ()}).Run(t.Context(), call(dir, "ADD"))
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%s %v", out, err)
	}
}
