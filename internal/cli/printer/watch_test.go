// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
)

// pod is an object of the watched list.
type pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Addr      string `json:"addr,omitempty"`
	Sandbox   string `json:"-"`
}

// shown is the result of a query with these pods, and a table of their blocks.
func shown(blocks []string, lines []printer.Line, pods ...pod) printer.Result {
	t := printer.Table{Header: []string{"NAMESPACE", "NAME", "STATE", "ADDRESS", "SANDBOX"}, Keys: 2, Wide: 1}
	for _, p := range pods {
		t.Row(p.Namespace+"/"+p.Name, p.Namespace, p.Name, p.State, p.Addr, p.Sandbox)
	}
	b := printer.Table{Header: []string{"BLOCK", "NODE"}}
	for _, block := range blocks {
		b.Row("", block, "node1")
	}
	return printer.Result{Document: pods, Tables: []printer.Table{t, b}, Lines: lines}
}

// watch runs a command with these flags until the last answer is printed, and returns what it printed.
func watch(t *testing.T, args []string, answers ...any) (out, errs string, err error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	w := printer.Objects(fs, true).Watch(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	w.Pause = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr strings.Builder
	err = w.Show(ctx, &stdout, &stderr, func(ctx context.Context) (printer.Result, error) {
		if len(answers) == 0 {
			cancel() // Ctrl-C while it waits for an answer
			return printer.Result{}, ctx.Err()
		}
		next := answers[0]
		answers = answers[1:]
		if fault, is := next.(error); is {
			return printer.Result{}, fault
		}
		return next.(printer.Result), nil
	})
	return stdout.String(), stderr.String(), err
}

func TestWatch(t *testing.T) {
	a := pod{"default", "a", "Running", "10.1.0.1", "01"}
	starting := pod{"default", "longer", "Starting", "", ""}
	longer := pod{"default", "longer", "Running", "10.1.0.2", "02"}
	other := pod{"default", "longer", "Running", "10.1.0.2", "03"}
	wait := func(why string) []printer.Line {
		return []printer.Line{{Key: "x", Text: "waits for " + why, Gone: "waits no longer"}}
	}
	answers := []any{
		shown(nil, nil, a), shown(nil, nil, a), shown(nil, wait("images"), a, starting), shown([]string{"10.1.0.0/26"}, wait("a node"), a, longer),
		shown([]string{"10.1.0.0/26"}, nil, a, other), shown([]string{"10.1.0.0/26"}, nil, other),
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-w"}, "" +
			"NAMESPACE  NAME  STATE    ADDRESS\n" +
			"default    a     Running  10.1.0.1\n" +
			"default    longer  Starting  -\n" +
			"waits for images\n" +
			"default    longer  Running   10.1.0.2\n" +
			"\nBLOCK        NODE\n10.1.0.0/26  node1\n" +
			"waits for a node\n" +
			"waits no longer\n" +
			"\nNAMESPACE  NAME    STATE     ADDRESS\n" +
			"default    a       deleted   -\n"},
		{[]string{"-w", "-o", "wide", "--no-headers"}, "" +
			"default  a  Running  10.1.0.1  01\n" +
			"default  longer  Starting  -         -\n" +
			"waits for images\n" +
			"default  longer  Running   10.1.0.2  02\n" +
			"\n10.1.0.0/26  node1\n" +
			"waits for a node\n" +
			"\ndefault  longer  Running   10.1.0.2  03\n" +
			"waits no longer\n" +
			"default  a       deleted   -         -\n"},
		{[]string{"--watch", "-o", "name"}, "default/a\ndefault/longer\ndefault/longer\n"},
		{[]string{"-w", "-o", "jsonpath={[*].state}"}, "Running\nRunning Starting\nRunning Running\nRunning\n"},
		{[]string{"-w", "-o", "yaml"}, "" +
			"- addr: 10.1.0.1\n  name: a\n  namespace: default\n  state: Running\n---\n" +
			"- addr: 10.1.0.1\n  name: a\n  namespace: default\n  state: Running\n- name: longer\n  namespace: default\n  state: Starting\n---\n" +
			"- addr: 10.1.0.1\n  name: a\n  namespace: default\n  state: Running\n" +
			"- addr: 10.1.0.2\n  name: longer\n  namespace: default\n  state: Running\n---\n" +
			"- addr: 10.1.0.2\n  name: longer\n  namespace: default\n  state: Running\n"},
		{nil, "NAMESPACE  NAME  STATE    ADDRESS\ndefault    a     Running  10.1.0.1\n"},
	} {
		out, errs, err := watch(t, c.args, answers...)
		if err != nil || errs != "" || out != c.want {
			t.Errorf("%q: %v %q\n%swant\n%s", c.args, err, errs, out, c.want)
		}
	}
}

// TestWatchEmpty: what comes later has one header, also if there is nothing at the start.
func TestWatchEmpty(t *testing.T) {
	out, _, err := watch(t, []string{"-w"}, shown(nil, nil), shown(nil, nil), shown(nil, nil, pod{"a", "b", "Running", "", ""}))
	if want := "NAMESPACE  NAME  STATE  ADDRESS\na          b     Running  -\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// TestWatchAges: a column that changes by itself prints no row again.
func TestWatchAges(t *testing.T) {
	aged := func(age, phase string) printer.Result {
		table := printer.Table{Header: []string{"NAME", "AGE", "PHASE"}, Ages: "AGE"}
		table.Row("a", "a", age, phase)
		return printer.Result{Tables: []printer.Table{table}}
	}
	out, _, err := watch(t, []string{"-w"}, aged("1s", "up"), aged("3s", "up"), aged("5s", "down"))
	if want := "NAME  AGE  PHASE\na     1s   up\na     5s   down\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// TestWatchErrors: the first query must succeed; later errors are printed once, and the watch continues.
func TestWatchErrors(t *testing.T) {
	down := errors.New("agent: no answer")
	if out, errs, err := watch(t, []string{"-w"}, down); !errors.Is(err, down) || out+errs != "" {
		t.Errorf("%v %q %q", err, out, errs)
	}
	a, b := shown(nil, nil, pod{"n", "a", "Running", "", ""}), shown(nil, nil, pod{"n", "a", "Dead", "", ""})
	warned := b
	warned.Warnings = []string{"a process is dead"}
	out, errs, err := watch(t, []string{"-w", "--no-headers"}, a, down, down, b, warned, warned, down)
	if want := "n  a  Running  -\nn  a  Dead     -\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
	if want := "weft: agent: no answer\nweft: available again\nweft: a process is dead\nweft: agent: no answer\n"; errs != want {
		t.Errorf("%swant\n%s", errs, want)
	}
}

// TestWatchSame: a document is not printed again because of what changes by itself.
func TestWatchSame(t *testing.T) {
	at := func(time, value int) printer.Result {
		return printer.Result{Document: map[string]int{"time": time, "value": value}, Same: map[string]int{"value": value}}
	}
	out, _, err := watch(t, []string{"-w", "-o", "yaml"}, at(1, 1), at(2, 1), at(3, 2))
	if want := "time: 1\nvalue: 1\n---\ntime: 3\nvalue: 2\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// TestWatchTwins: rows with the same keys are printed once each.
func TestWatchTwins(t *testing.T) {
	x, y := pod{"n", "a", "Running", "1", ""}, pod{"n", "a", "Running", "2", ""}
	out, _, err := watch(t, []string{"-w", "--no-headers"}, shown(nil, nil, x, y), shown(nil, nil, x, y), shown(nil, nil, x))
	if want := "n  a  Running  1\nn  a  Running  2\nn  a  deleted  -\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}

// TestWatchValues: a value that is not known any more is a dash, and not deleted.
func TestWatchValues(t *testing.T) {
	values := func(known bool) printer.Result {
		var list printer.Table
		list.Row("", "agents", "2 of 2 answer")
		if known {
			list.Row("", "mesh", "2 paths")
		}
		return printer.Result{Tables: []printer.Table{list}}
	}
	out, _, err := watch(t, []string{"-w"}, values(true), values(false))
	if want := "agents  2 of 2 answer\nmesh    2 paths\nmesh    -\n"; err != nil || out != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}
