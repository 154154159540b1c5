// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/conformance"
	"github.com/weft-net/weft/internal/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.MainWithPrograms(m)) }

// judge runs the program as a user does; code is its exit code.
func judge(t *testing.T, args ...string) (report conformance.Report, code int) {
	t.Helper()
	stdout, stderr, code := run(t, append([]string{"-o", "json"}, args...)...)
	if code > 1 {
		t.Fatalf("weft conformance %v: exit code %d: %s", args, code, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("report: %v\n%s", err, stdout)
	}
	return report, code
}

func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(nettest.Programs(t), "weft"),
		append([]string{"conformance"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// failing are the items of a report that failed, with what was seen.
func failing(r conformance.Report) map[int]string {
	m := map[int]string{}
	for _, row := range r.Rows {
		if row.Outcome == conformance.Fail {
			m[row.Number] = row.Seen
		}
	}
	return m
}

// broken makes a directory with one plugin: weft's own, behind a script of testdata that spoils it.
func broken(t *testing.T, typ, defect string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "broken", defect+".sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := strings.ReplaceAll(string(b), "@REAL@", filepath.Join(nettest.Programs(t), "cni", typ))
	if err := os.WriteFile(filepath.Join(dir, typ), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sound := range map[string][]string{"ptp": {"host-local"}, "flannel": {"bridge", "host-local"}}[typ] {
		// what it calls itself
		if err := os.Symlink(filepath.Join(nettest.Programs(t), "cni", sound), filepath.Join(dir, sound)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTheKitCanFail: each spoilt plugin fails exactly the items that its defect is about, beyond those that the sound
// one fails.
func TestTheKitCanFail(t *testing.T) {
	programs := filepath.Join(nettest.Programs(t), "cni")
	sound := map[string]map[int]string{}
	for _, typ := range []string{"flannel", "host-local", "ptp", "tuning"} {
		r, _ := judge(t, "--bin-dir", programs, "--only", typ, "--timeout", "60s")
		sound[typ] = failing(r)
		if len(r.Rows) < 40 {
			t.Fatalf("%s: only %d rows", typ, len(r.Rows))
		}
	}
	for _, tt := range []struct {
		defect, typ string
		want        []int
	}{
		{"second-del-fails", "host-local", []int{27, 57}},
		{"talks", "host-local", []int{18}},
		{"wrong-version", "host-local", []int{79}},
		{"leaks", "host-local", []int{25, 26, 27, 28, 29, 57}},
		{"takes-existing", "ptp", []int{22}},
		{"no-version", "host-local", []int{11, 51, 79, 83}},
		{"loses-routes", "tuning", []int{21, 81}},
		{"exits-zero", "host-local", []int{15, 17, 30, 33, 83, 84, 86}},
		{"hangs-in-del", "host-local", []int{11, 25, 26, 27, 28, 29, 33, 42, 55, 57, 79}},
		{"hangs-in-status", "host-local", []int{41}},
		{"collects-all", "host-local", []int{50}},
		{"collects-nothing", "host-local", []int{46}},
		{"collects-nothing", "ptp", []int{46, 47, 48, 75}},
		{"content", "host-local", []int{30, 33}},
		{"content", "ptp", []int{30, 32, 34, 36, 75}},
		{"always-ready", "flannel", []int{43, 44}},
		{"status-writes", "host-local", []int{41}},
		{"own-codes", "host-local", []int{83, 85, 86}},
		{"mute", "host-local", []int{84, 86}},
		{"needs-namespace", "host-local", []int{29}},
		{"needs-prevresult", "host-local", []int{25, 28}},
		{"one-at-a-time", "host-local", []int{55}},
		{"strict-keys", "host-local", []int{12}},
		{"interfaces", "host-local", []int{82}},
		{"wrong-sandbox", "ptp", []int{80}},
		{"swallows-stderr", "ptp", []int{77}},
		{"drops-args", "ptp", []int{73}},
		{"tolerant", "host-local", []int{15}},
	} {
		t.Run(tt.defect+" "+tt.typ, func(t *testing.T) {
			t.Parallel()
			timeout := "60s" // long enough for a busy machine
			if strings.HasPrefix(tt.defect, "hangs") {
				timeout = "8s"
			}
			r, code := judge(t, "--bin-dir", broken(t, tt.typ, tt.defect), "--only", tt.typ, "--runtime=false",
				"--timeout", timeout)
			want := 0
			if _, required := r.Broken(); required > 0 {
				want = 1
			}
			if code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			var got []int
			seen := failing(r)
			for n := range seen {
				if _, anyway := sound[tt.typ][n]; !anyway {
					got = append(got, n)
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("failing items (-want +got):\n%s", d)
				for _, n := range got {
					t.Logf("%d: %s", n, seen[n])
				}
			}
		})
	}
}

// TestWeft: weft's own plugins fail nothing, but for what they do on purpose: STATUS does not tell of a full range of
// host-local, since runtimes would declare the node not ready.
func TestWeft(t *testing.T) {
	types, err := conformance.Present(filepath.Join(nettest.Programs(t), "cni"))
	if err != nil {
		t.Fatal(err)
	}
	ours(t, slices.DeleteFunc(types, func(typ string) bool { return slices.Contains(rare(), typ) }))
}

// TestWeftDummyIPVlanVRF: nor do those whose link kinds small kernels lack.
func TestWeftDummyIPVlanVRF(t *testing.T) { ours(t, rare()) }

func rare() []string { return []string{"dummy", "ipvlan", "vlan", "vrf"} }

func ours(t *testing.T, types []string) {
	programs := filepath.Join(nettest.Programs(t), "cni")
	for _, typ := range types {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			r, code := judge(t, "--bin-dir", programs, "--only", typ, "--timeout", "60s")
			for _, row := range r.Rows {
				switch row.Outcome {
				case conformance.Fail:
					if row.Number == 43 && typ != "dhcp" && typ != "flannel" {
						continue // it is not required, and the exit code is about what is
					}
					t.Errorf("%d (%s): %s", row.Number, row.Claim, row.Seen)
				case conformance.Unsupported:
					nettest.Skip(t, row.Seen)
				}
			}
			if code != 0 && !t.Failed() {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestCallers: weft's own callers fail nothing, but for what the agent does on purpose: its DEL goes on after an error.
func TestCallers(t *testing.T) {
	var items []string
	for _, i := range conformance.Items() {
		if i.Side == "R" {
			items = append(items, "--item", strconv.Itoa(i.Number))
		}
	}
	r, _ := judge(t,
		append(items, "--runtime", "--bin-dir", filepath.Join(nettest.Programs(t), "cni"), "--only", "static")...)
	for _, row := range r.Rows {
		if row.Outcome == conformance.Fail && (row.Number != 63 || row.Judged != "weft agent") {
			t.Errorf("%s, %d (%s): %s", row.Judged, row.Number, row.Claim, row.Seen)
		}
	}
	if r.Totals[conformance.Pass] < 50 {
		t.Errorf("only %d rows pass", r.Totals[conformance.Pass])
	}
}

// TestCommandLine: what cannot be meant is refused with the way out, and with the exit code for that.
func TestCommandLine(t *testing.T) {
	programs := filepath.Join(nettest.Programs(t), "cni")
	for _, tt := range []struct{ args, want string }{
		{"", "--bin-dir is missing: name the directory of the plugins"},
		{"--bin-dir /nowhere", "plugin directory: open /nowhere: no such file or directory"},
		{"--bin-dir /proc", "has none of the plugins that can be judged without --conflist: bridge, ptp"},
		{"--bin-dir " + programs + " --conflist /nowhere", "open /nowhere: no such file or directory"},
		{"--bin-dir " + programs + " --conflist testdata/lists/none.json", `it has no "plugins"`},
		{"--bin-dir testdata --conflist testdata/lists/vendor.conflist", `plugin "vendor-net": testdata has no such program`},
		{"--bin-dir " + programs + " --only bridge,brigde", `--only "brigde": the plugins that can be judged are bridge`},
		{"--bin-dir testdata --only ptp", `--only "ptp": testdata has no such program`},
		{"--bin-dir " + programs + " --item 99", "--item 99: the checklist has the items 1 to 87"},
		{"--bin-dir " + programs + " -o yaml", `output "yaml" is neither text nor json`},
		{"--bin-dir " + programs + " --timeout 1ms", "--timeout 1ms: from 1s to 10m"},
		{"--bin-dir " + programs + " more", `"more": conformance has flags, no arguments`},
		{"--bin-dir " + programs + " --only=", "--only is empty: name plugins, or leave it out"},
		{"--markdown weft=" + programs + " -o json", "--output says nothing there"},
		{"--markdown weft", `--markdown "weft" is no NAME=DIR`},
	} {
		stdout, stderr, code := run(t, strings.Fields(tt.args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("weft conformance %s: exit code %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
}

// TestProgram: the kit's own program is the command under another name.
func TestProgram(t *testing.T) {
	out, err := exec.Command(filepath.Join(nettest.Programs(t), "cni-conformance"), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	same, _, _ := run(t, "--help")
	if !strings.Contains(same, "\n  weft conformance --bin-dir DIR [flags]\n") ||
		strings.ReplaceAll(same, "weft conformance", "cni-conformance") != string(out) {
		t.Errorf("weft conformance --help:\n%s\ncni-conformance --help:\n%s", same, out)
	}
}

// TestNothingIsLeft: a run leaves no process, mount or file, also when it is stopped in the middle.
func TestNothingIsLeft(t *testing.T) {
	programs := filepath.Join(nettest.Programs(t), "cni")
	look := func() string {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		out := strconv.Itoa(strings.Count(string(mounts), "\n")) + " mounts"
		for _, dir := range []string{"/run", "/var/lib/cni", "/run/weft"} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				out += " " + e.Name()
			}
		}
		return out + "\n" + nettest.Run(t, nil, "ip", "-br", "link")
	}
	before := look()
	judge(t, "--bin-dir", programs, "--only", "ptp", "--item", "26,29,55")
	if d := cmp.Diff(before, look()); d != "" {
		t.Errorf("after a run (-before +after):\n%s", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(nettest.Programs(t), "weft"), "conformance", "--bin-dir",
		broken(t, "host-local", "hangs-in-del"))
	if err := cmd.Run(); err == nil {
		t.Error("a run that was killed succeeds")
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left, err := exec.Command("pgrep", "-f", "sleep 1000|hangs-in-del").Output()
		if err != nil && before == look() {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after a killed run: processes %s, %s", left, cmp.Diff(before, look()))
		}
	}
}
