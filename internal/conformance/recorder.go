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

// recorderType is the type of the plugin that records its input and prints a configured result.
const recorderType = "kit-recorder"

// recorder is a directory of CNI_PATH with recording plugins, their configured results and their records.
type recorder struct{ dir string }

// record is one call of a recording plugin.
type record struct {
	verb       string
	typ        string
	env        map[string]string
	stdin      []byte
	netns      string // its network namespace
	netnsState string // of CNI_NETNS: "there" or "missing"
	// Only set for calls with a delay.
	start, end time.Time
}

// The script is plain sh, so that the checks do not depend on a vendor's library.
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

// newRecorder creates the directory with a recording plugin of each type.
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

// setResult sets a recording plugin's output for a verb; @N@ in it is replaced by the number of the call plus 9.
func (r *recorder) setResult(typ, verb string, doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb), b, 0o644)
}

// setError makes a recording plugin fail a verb.
func (r *recorder) setError(typ, verb, cniVersion, msg string) error {
	err := r.setResult(typ, verb, map[string]any{"cniVersion": cniVersion, "code": 142, "msg": msg})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb+".exit"), []byte("1"), 0o644)
}

// setDelay delays a recording plugin.
func (r *recorder) setDelay(typ, verb string) error {
	return os.WriteFile(filepath.Join(r.dir, "answers", typ+"."+verb+".slow"), nil, 0o644)
}

// reset deletes the records.
func (r *recorder) reset() error {
	calls := filepath.Join(r.dir, "calls")
	if err := os.RemoveAll(calls); err != nil {
		return err
	}
	return os.Mkdir(calls, 0o755)
}

// records returns the calls in their order; of all verbs if verb is empty.
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
			b, _ := os.ReadFile(filepath.Join(r.dir, "calls", e.Name(), name)) // missing if the call was killed
			return strings.TrimSpace(string(b))
		}
		rec := record{
			typ: read("type"), env: map[string]string{}, stdin: []byte(read("stdin")), netns: read("netns"),
			netnsState: read("files"),
		}
		for line := range strings.Lines(read("env")) {
			if k, v, found := strings.Cut(strings.TrimSpace(line), "="); found {
				rec.env[k] = v
			}
		}
		rec.start, rec.end = r.modTime(e.Name(), "begun"), r.modTime(e.Name(), "ended")
		if rec.verb = rec.env["CNI_COMMAND"]; verb == "" || verb == rec.verb {
			out = append(out, rec)
		}
	}
	return out
}

// modTime returns the time at which a call wrote a file.
func (r *recorder) modTime(call, name string) time.Time {
	st, err := os.Stat(filepath.Join(r.dir, "calls", call, name))
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// conf returns the configuration of a call.
func (r record) conf() map[string]any {
	m := map[string]any{}
	_ = json.Unmarshal(r.stdin, &m) // empty if it is not an object
	return m
}
