// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
)

func tables() []printer.Table {
	pods := printer.Table{Header: []string{"POD", "NODE", "SANDBOX"}, Wide: 1}
	pods.Row("default/a", "a", "node1", "0123")
	pods.Row("default/long", "long", "", "4567")
	nodes := printer.Table{Header: []string{"NODE"}}
	nodes.Row("", "node1")
	return []printer.Table{pods, {Header: []string{"EMPTY"}}, nodes}
}

func TestTables(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "POD   NODE\na     node1\nlong  -\n\nNODE\nnode1\n"},
		{[]string{"-o", "wide"}, "POD   NODE   SANDBOX\na     node1  0123\nlong  -      4567\n\nNODE\nnode1\n"},
		{[]string{"--no-headers"}, "a     node1\nlong  -\n\nnode1\n"},
		{[]string{"-o", "wide", "--no-headers"}, "a     node1  0123\nlong  -      4567\n\nnode1\n"},
		{[]string{"-o", "name"}, "default/a\ndefault/long\n"},
	} {
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		f := printer.Objects(fs, true)
		if err := fs.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := f.Tables(&out, tables()...); err != nil || f.Document() || out.String() != c.want {
			t.Errorf("%q: %v\n%swant\n%s", c.args, err, out.String(), c.want)
		}
	}
}

// TestNoObjects: of tables without rows only the first one's header is printed.
func TestNoObjects(t *testing.T) {
	f, err := parse(t, []string{printer.Text})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := f.Tables(&out, printer.Table{Header: []string{"POD", "NODE"}}, printer.Table{Header: []string{"VM"}}); err != nil ||
		out.String() != "POD  NODE\n" {
		t.Errorf("%v %q", err, out.String())
	}
}

// TestNoWide: -o wide is refused where it would print nothing more.
func TestNoWide(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := printer.Objects(fs, false)
	if err := fs.Parse([]string{"-o", "wide"}); err == nil {
		t.Error("-o wide is accepted")
	}
	if want := "text, name, json, yaml or jsonpath=TEMPLATE"; f.Choices() != want {
		t.Errorf("choices are %q, want %q", f.Choices(), want)
	}
}

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "5m3s": 5*time.Minute + 3*time.Second, "47h": 47 * time.Hour,
		"12d": 12 * 24 * time.Hour,
	} {
		if got := printer.Age(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
