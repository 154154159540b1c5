// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

func TestPercentile(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct{ p, want float64 }{{50, 5}, {95, 10}, {99, 10}, {10, 1}, {0, 1}, {100, 10}} {
		if got := percentile(values, c.p); got != c.want {
			t.Errorf("percentile %v of 1..10 = %v, want %v", c.p, got, c.want)
		}
	}
	if got := percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing = %v", got)
	}
}

func TestRatiosCompareOnlyTheSameCell(t *testing.T) {
	s := newSamples()
	one, eight := Cell{Pods: 10, Concurrency: 1}, Cell{Pods: 10, Concurrency: 8}
	for _, v := range []float64{10, 30, 20} {
		s.add("peer", one, "add", "ms", v)
		s.add("weft", one, "add", "ms", v/10)
	}
	s.add("weft", eight, "add", "ms", 7) // no ratio: the peer was not measured at concurrency 8
	rows := s.rows(Chain{Name: "ptp"}, []string{"peer", "weft"})
	want := []Row{
		{Impl: "peer", Chain: "ptp", Concurrency: 1, Pods: 10, N: 3, Metric: "add", P50: 20, P95: 30, P99: 30, Unit: "ms"},
		{Impl: "weft", Chain: "ptp", Concurrency: 1, Pods: 10, N: 3, Metric: "add", P50: 2, P95: 3, P99: 3, Unit: "ms"},
		{Impl: "weft", Chain: "ptp", Concurrency: 8, Pods: 10, N: 1, Metric: "add", P50: 7, P95: 7, P99: 7, Unit: "ms"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	got := ratios(rows, func(impl string) bool { return impl == "peer" })
	if diff := cmp.Diff([]Ratio{
		{Metric: "add", Chain: "ptp", Concurrency: 1, Pods: 10, Peer: "peer", Weft: "weft", Ratio: 0.1},
	}, got); diff != "" {
		t.Errorf("ratios (-want +got):\n%s", diff)
	}
}

func TestReportKeysAreStable(t *testing.T) {
	b, err := json.Marshal(Report{Rows: []Row{{}}, Ratios: []Ratio{{}}})
	if err != nil {
		t.Fatal(err)
	}
	if none := ratios(nil, func(string) bool { return true }); none == nil {
		t.Error("an empty list of ratios is null in JSON")
	}
	want :=
		`{"rows":[{"impl":"","chain":"","concurrency":0,"pods":0,"n":0,"metric":"","p50":0,"p95":0,"p99":0,"unit":""}],` +
			`"ratios":[{"metric":"","chain":"","concurrency":0,"pods":0,"peer":"","weft":"","ratio":0}]}`
	if string(b) != want {
		t.Errorf("report keys changed:\n got %s\nwant %s", b, want)
	}
	var text bytes.Buffer
	if err := (Report{Rows: []Row{{Impl: "peer", Metric: "add"}}, Notes: []string{"no strace"}}).Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"peer", "add", "note: no strace"} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("text report lacks %q:\n%s", part, text.String())
		}
	}
}

func TestParseChain(t *testing.T) {
	for _, c := range []struct {
		name, conf, want string
		code             model.Code
	}{
		{"not JSON", "{", "chain x.conflist", model.CodeDecode},
		{"no plugins", `{"name":"n"}`, "plugins is missing", model.CodeInvalidConf},
		{"empty plugins", `{"name":"n","plugins":[]}`, "plugins is missing", model.CodeInvalidConf},
		{"no name", `{"plugins":[{}]}`, "name is missing", model.CodeInvalidConf},
	} {
		_, err := ParseChain("x.conflist", []byte(c.conf))
		var modelErr *model.Error
		if !errors.As(err, &modelErr) || modelErr.Code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want code %d and %q", c.name, err, c.code, c.want)
		}
	}
}

func TestChainForms(t *testing.T) {
	chain, err := ParseChain(
		"dir/ptp.conflist", []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","ipam":{"type":"host-local"}},`+
			`{"type":"portmap","capabilities":{"portMappings":true,"other":false}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	standalone, err := chain.standaloneList("/d")
	if err != nil || !strings.Contains(string(standalone), `"dataDir":"/d/networks"`) {
		t.Errorf("standalone form: %s, %v", standalone, err)
	}
	agent, err := chain.agentList("/d", "/d/s")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"type":"weft-cni"`, `"socket":"/d/s"`, `"delegates":[{`, `"dataDir":"/d/networks"`,
		`"capabilities":{"portMappings":true},"delegates"`,
	} {
		if !strings.Contains(string(agent), part) {
			t.Errorf("agent form lacks %s: %s", part, agent)
		}
	}
	if chain.Name != "ptp" {
		t.Errorf("chain name %q", chain.Name)
	}
}

func TestCountTrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace")
	trace := `100 execve("/bin/x", ["x"], 0x1 /* 2 vars */) = 0
100 execve("/nowhere", ["x"], 0x1) = -1 ENOENT (No such file)
100 futex(0x1, FUTEX_WAIT <unfinished ...>
101 read(0, "", 5) = 0
100 <... futex resumed>) = 0
101 --- SIGURG {si_signo=SIGURG} ---
102 execve("/bin/y", ["y"], 0x1 /* 2 vars */ <unfinished ...>
102 <... execve resumed>) = 0
101 +++ exited with 0 +++
`
	if err := os.WriteFile(file, []byte(trace), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := countTrace(file, false)
	if want := (traced{calls: 5, execs: 2, scheduling: 1}); err != nil || n != want {
		t.Errorf("got %+v, err %v; want %+v", n, err, want)
	}
	// Thread 102's first line stands for a call that strace found it in, if strace was attached.
	if n, err = countTrace(file, true); err != nil || n.calls != 4 {
		t.Errorf("calls %d, err %v; want 4", n.calls, err)
	}
}

// A parked file stays open without a descriptor in the table until the park is closed.
func TestFDPark(t *testing.T) {
	p, err := newFDPark()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.add(int(w.Fd())), w.Close(),
		r.SetReadDeadline(time.Now().Add(50*time.Millisecond))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the parked end of the pipe is not open: %v", err)
	}
	p.close()
	if err := r.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the parked end of the pipe is open after close: %v", err)
	}
}

func TestImpls(t *testing.T) {
	dir := t.TempDir()
	got, err := Impls([]string{"ref=" + dir, dir}, []string{"standalone", "agent"}, dir, "/bin/weft-agent")
	if err != nil {
		t.Fatal(err)
	}
	want := []Impl{
		{Name: "ref", BinDir: dir, Peer: true},
		{Name: filepath.Base(dir), BinDir: dir, Peer: true},
		{Name: "weft-standalone", BinDir: dir},
		{Name: "weft-agent", BinDir: dir, Agent: "/bin/weft-agent"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("impls (-want +got):\n%s", diff)
	}
	for _, bad := range [][2][]string{{{dir, dir}, nil}, {{dir + "/none"}, nil}, {nil, {"daemon"}}} {
		if _, err := Impls(bad[0], bad[1], dir, "/bin/weft-agent"); err == nil {
			t.Errorf("Impls(%v) returned no error", bad)
		}
	}
}
