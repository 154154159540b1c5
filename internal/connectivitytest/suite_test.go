// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
)

// Only a namespace of a test is ever deleted.
func TestNames(t *testing.T) {
	if name := NewName(); !IsName(name) || name == NewName() {
		t.Errorf("%q", name)
	}
	for _, name := range []string{
		"", "default", "kube-system", Prefix, Prefix + "abcdeg", Prefix + "abcdef0", Prefix + "abcdef-policy",
		"x" + Prefix + "abcdef",
	} {
		if IsName(name) {
			t.Errorf("%q is taken for a test's namespace", name)
		}
		var f *model.Error
		if err := Clean(t.Context(), nil, name, true); !errors.As(err, &f) || f.Code != model.CodeInvalidConf {
			t.Errorf("Clean of %q: %v", name, err)
		}
	}
}

// Silence is expected or not; what was not tried is neither.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		check  check
		result probe.Result
		err    error
		wrong  string
	}{
		{check{}, probe.Result{State: probe.Answered}, nil, ""},
		{check{server: "a"}, probe.Result{State: probe.Answered, Server: "b"}, nil, "the answer is of b"},
		{check{}, probe.Result{State: probe.Silent, Error: "no answer"}, nil, "no answer"},
		{check{deny: true}, probe.Result{State: probe.Silent}, nil, ""},
		{check{deny: true}, probe.Result{State: probe.Answered}, nil, "must not be"},
		{check{deny: true}, probe.Result{State: probe.Failed, Error: "refused"}, nil, "refused"},
		{check{deny: true}, probe.Result{State: probe.Silent}, errors.New("no pod"), "not run: no pod"},
		{check{}, probe.Result{State: probe.Answered}, errors.New("no pod"), "not run: no pod"},
	} {
		got := c.check.verdict(c.result, c.err)
		if (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%+v, %+v, %v: %q, not %q", c.check, c.result, c.err, got, c.wrong)
		}
	}
}

func TestReport(t *testing.T) {
	r := Report{Tests: []TestResult{
		{
			Name: "pods",
			Rows: []Row{
				{Name: "a to b", OK: true, Attempts: 1},
				{Name: "b to a", Error: "no answer", Diagnosis: []string{"trace: lost <here>"}},
			},
		},
		{Name: "dns", Skipped: []string{"no server"}},
		{Name: "mtu", Error: "it ended", Rows: []Row{}},
	}}
	if r.OK() {
		t.Error("failed checks are ok")
	}
	var text strings.Builder
	r.Text(&text, true)
	for _, want := range []string{
		"FAIL  pods", "1 of 2 checks", "b to a: no answer", "trace: lost <here>", "skip  dns", "no server", "ended: it ended",
		"0 tests passed, 2 failed, 1 skipped", "a to b: ok",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	var out bytes.Buffer
	if err := r.JUnit(&out); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for dec := xml.NewDecoder(&out); ; {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
	if count["testsuite"] != 3 || count["testcase"] != 4 || count["failure"] != 2 || count["skipped"] != 1 {
		t.Errorf("elements of JUnit: %v", count)
	}
	for _, empty := range []Report{{}, {Tests: []TestResult{{Name: "dns", Skipped: []string{"no server"}}}}} {
		if empty.OK() {
			t.Errorf("nothing was checked, and it is ok: %+v", empty)
		}
	}
}

// A name that is not that of a test is an error with the names.
func TestOnly(t *testing.T) {
	if _, err := New(
		nil,
		NewName(),
		Options{Only: []string{"pods", "mtuu"}},
	); err == nil ||
		!strings.Contains(err.Error(), `"mtuu"`) {
		t.Errorf("%v", err)
	}
	chosen, err := choose([]string{"mtu", "pods", "mtu"})
	if err != nil || len(chosen) != 2 || chosen[0].name != "mtu" {
		t.Errorf("%v, %v", chosen, err)
	}
}

// Every policy allows something and denies something, in flows between the test's pods.
func TestPolicyCases(t *testing.T) {
	names := map[string]bool{}
	for _, c := range newFixture(nil, NewName()).policyCases() {
		if names[c.name] || len(c.allow) == 0 || len(c.deny) == 0 || len(c.specs) == 0 || len(c.specs) > 2 {
			t.Errorf("%q: %d specs, %d allowed, %d denied", c.name, len(c.specs), len(c.allow), len(c.deny))
		}
		names[c.name] = true
	}
}

// Random policies are drawn again by their number, and let some traffic pass and some not. What they allow follows from
// the words of NetworkPolicy.
func TestRandomPolicies(t *testing.T) {
	pods := map[string]matrixPod{}
	for _, p := range matrixPods() {
		pods[p.name] = p
	}
	draw := func(seed uint64) string {
		all, allow, deny := drawPolicies(rand.New(rand.NewPCG(seed, 0)))
		if len(allow) == 0 || len(deny) == 0 || len(allow)+len(deny) != 4*3*4 {
			t.Errorf("%d: %d allowed, %d denied", seed, len(allow), len(deny))
		}
		return fmt.Sprint(all, allow, deny)
	}
	if draw(7) != draw(7) || draw(7) == draw(8) {
		t.Error("a number does not stand for its policies")
	}
	isolated := randomPolicy{selects: []string{"server"}, ingress: []randomRule{}}
	for _, c := range []struct {
		all      []randomPolicy
		from, to string
		kind     probe.Kind
		port     int
		want     bool
	}{
		{nil, "other", "server", probe.ICMP, serverPort, true},
		{[]randomPolicy{isolated}, "client", "server", probe.TCP, serverPort, false},
		{[]randomPolicy{isolated}, "server", "client", probe.TCP, serverPort, true},
		{[]randomPolicy{isolated, {ingress: []randomRule{{}}}}, "other", "server", probe.UDP, serverPort, true},
		{[]randomPolicy{{egress: []randomRule{}}}, "other", "client", probe.TCP, serverPort, true},
		{[]randomPolicy{{egress: []randomRule{}}}, "client", "other", probe.TCP, serverPort, false},
		{
			[]randomPolicy{{ingress: []randomRule{{ports: []randomPort{{protocol: "TCP", first: 1, end: serverPort}}}}}},
			"client", "server", probe.TCP, secondPort, false,
		},
		{
			[]randomPolicy{{ingress: []randomRule{{ports: []randomPort{{protocol: "TCP", first: 1, end: serverPort}}}}}},
			"client", "server", probe.ICMP, serverPort, false,
		},
		{
			[]randomPolicy{{ingress: []randomRule{{peers: []randomPeer{{block: "client", except: true}}}}}},
			"visitor", "server", probe.TCP, secondPort, true,
		},
		{
			[]randomPolicy{{ingress: []randomRule{{peers: []randomPeer{{roles: []string{"client"}}}}}}},
			"other", "server", probe.TCP, secondPort, false, // of another namespace
		},
		{
			[]randomPolicy{{ingress: []randomRule{{peers: []randomPeer{{team: "other"}}}}}},
			"other", "server", probe.TCP, secondPort, true,
		},
	} {
		if got := allowed(c.all, pods[c.from], pods[c.to], c.kind, c.port); got != c.want {
			t.Errorf("%+v: %s to %s, %s %d: %v", c.all, c.from, c.to, c.kind, c.port, got)
		}
	}
}

// Of the pods of a VM that migrates, or has, the VM runs in one.
func TestRunsIn(t *testing.T) {
	source, target := model.Pod{Name: "vm", Node: "a"}, model.Pod{Name: "vm-2", Node: "b"}
	for status, want := range map[string]model.Pod{
		`{}`: source,
		`{"nodeName": "a", "migrationState": {"targetPod": "vm-2"}}`:                                    source,
		`{"migrationState": {"targetPod": "vm-2"}}`:                                                     source,
		`{"nodeName": "a", "migrationState": {"targetPod": "vm-2", "completed": true, "failed": true}}`: source,
		`{"nodeName": "b", "migrationState": {"targetPod": "vm-2", "completed": true}}`:                 target,
	} {
		var f vmFields
		if err := json.Unmarshal([]byte(`{"status": `+status+`}`), &f); err != nil {
			t.Fatal(err)
		}
		other := source
		if want.Name == source.Name {
			other = target
		}
		if !f.runsIn(want) || (status != `{}` && f.runsIn(other)) {
			t.Errorf("%s: it runs in %s", status, want.Name)
		}
	}
}
