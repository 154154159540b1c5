// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recording is the type of the plugin that writes down what it is given and answers what it is told.
const recording = "kit-recorder"

// recorder is a directory of CNI_PATH with recording plugins, their answers and their records.
type recorder struct{ dir string }

// record is one call of a recording plugin.
type record struct {
	verb  string
	typ   string
	env   map[string]string
	stdin []byte
	netns string // the namespace that it ran in
	files string // its CNI_NETNS, as it stood: "there" or "missing"
	// When it began and ended; only of a call that takes its time.
	begun, ended time.Time
}

// The script is plain sh, so that no vendor's library stands between a caller and what is judged.
const script = `#!/bin/sh
dir=%s
me=${0##*/}
[ "$CNI_COMMAND" != VERSION ] ||
	{ echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}'; exit 0; }
n=0
until mkdir "$dir/calls/$n" 2>/dev/null; do n=$((n+1)); [ $n -lt 1000 ] || exit 9; done
call=$dir/calls/$n
cat > "$call/stdin"
env > "$call/env"
echo "$me" > "$call/type"
readlink /proc/self/ns/net > "$call/netns"
if [ -e "$CNI_NETNS" ]; then echo there; else echo missing; fi > "$call/files"
echo "$me says $CNI_COMMAND" >&2
[ ! -e "$dir/answers/$me.$CNI_COMMAND.slow" ] || { : > "$call/begun"; sleep 0.3; : > "$call/ended"; }
[ ! -e "$dir/answers/$me.$CNI_COMMAND" ] || sed "s/@N@/$((n + 9))/g" "$dir/answers/$me.$CNI_COMMAND"
[ ! -e "$dir/answers/$me.$CNI_COMMAND.exit" ] || exit "$(cat "$dir/answers/$me.$CNI_COMMAND.exit")"
`

// newRecorder makes the directory with a recording plugin of each type.
func newRecorder(dir string, types ...string) (*recorder, error) {
	r := &recorder{dir: dir}
	for _, sub := range []string{"bin", "calls", "answers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	for _, t := range types {
		if err := os.WriteFile(filepath.Join(dir, "bin", t), fmt.Appendf(nil, script, dir), 0o755); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *recorder) close() {
	if r != nil {
		_ = os.RemoveAll(r.dir)
	}
}

func (r *recorder) bin() string { return filepath.Join(r.dir, "bin") }

// answer tells a recording plugin what to print for a verb; @N@ in it is the number of the call, from 9 on.
func (r *recorder) answer(typ, verb string, doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb), b, 0o644)
}

// refuse tells a recording plugin to fail a verb.
func (r *recorder) refuse(typ, verb, cniVersion, msg string) error {
	err := r.answer(typ, verb, map[string]any{"cniVersion": cniVersion, "code": 142, "msg": msg})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb+".exit"), []byte("1"), 0o644)
}

// slow makes a recording plugin take its time.
func (r *recorder) slow(typ, verb string) error {
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb+".slow"), nil, 0o644)
}

// forget drops the records.
func (r *recorder) forget() error {
	calls := filepath.Join(r.dir, "calls")
	if err := os.RemoveAll(calls); err != nil {
		return err
	}
	return os.Mkdir(calls, 0o755)
}

// records reads the calls, in their order; of one verb, or of all when verb is empty.
func (r *recorder) records(verb string) []record {
	entries, _ := os.ReadDir(filepath.Join(r.dir, "calls"))
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		x, _ := strconv.Atoi(a.Name())
		y, _ := strconv.Atoi(b.Name())
		return x - y
	})
	var out []record
	for _, e := range entries {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(r.dir, "calls", e.Name(), name)) // a call that was killed has not all of them
			return strings.TrimSpace(string(b))
		}
		rec := record{
			typ: read("type"), env: map[string]string{}, stdin: []byte(read("stdin")), netns: read("netns"),
			files: read("files"),
		}
		for line := range strings.Lines(read("env")) {
			if k, v, found := strings.Cut(strings.TrimSpace(line), "="); found {
				rec.env[k] = v
			}
		}
		rec.begun, rec.ended = r.when(e.Name(), "begun"), r.when(e.Name(), "ended")
		if rec.verb = rec.env["CNI_COMMAND"]; verb == "" || verb == rec.verb {
			out = append(out, rec)
		}
	}
	return out
}

// when is the time at which a call has written a file.
func (r *recorder) when(call, name string) time.Time {
	st, err := os.Stat(filepath.Join(r.dir, "calls", call, name))
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// conf is the configuration that a call was given.
func (r record) conf() map[string]any {
	m := map[string]any{}
	_ = json.Unmarshal(r.stdin, &m) // what is no object has no fields
	return m
}
