// SPDX-License-Identifier: Apache-2.0

package printer_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/printer"
)

type document struct {
	Good  bool           `json:"good"`
	Bytes int64          `json:"bytes"`
	Nodes []node         `json:"nodes"`
	None  map[string]int `json:"none,omitempty"`
}

type node struct {
	Name string `json:"name"`
	Age  *int   `json:"age"`
}

func sample() document {
	return document{Good: true, Bytes: 12345678901, Nodes: []node{{Name: "node1"}, {Name: "node2"}}}
}

// parse returns the format after the flags of a command line.
func parse(t *testing.T, values []string, args ...string) (*printer.Format, error) {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := printer.Flag(fs, values...)
	return f, fs.Parse(args)
}

func TestFormats(t *testing.T) {
	both := []string{printer.Text, printer.JSON}
	for want, args := range map[string][]string{
		"": nil,
		"bytes: 12345678901\ngood: true\nnodes:\n- age: null\n  name: node1\n- age: null\n  name: node2\n": {"-o", "yaml"},
		"12345678901\n":  {"-o", "jsonpath={.bytes}"},
		"node1 node2\n":  {"-o", "jsonpath=.nodes[*].name"},
		"true\n":         {"-o", "jsonpath=good"},
		"node1\nnode2\n": {"-o", `jsonpath={range .nodes[*]}{.name}{"\n"}{end}`},
		"\n":             {"-o", "jsonpath={.nosuch}"},
		"[node2]\n":      {"-o", `jsonpath=[{.nodes[?(@.name=="node2")].name}]`},
	} {
		f, err := parse(t, both, args...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
			continue
		}
		var out strings.Builder
		if f.Document() {
			err = f.Print(&out, sample())
		}
		if err != nil || out.String() != want {
			t.Errorf("%q: %v\n%swant\n%s", args, err, out.String(), want)
		}
	}
}

// TestJSON: the keys are those of the document, in its order.
func TestJSON(t *testing.T) {
	f, err := parse(t, []string{printer.Text, printer.JSON}, "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := f.Print(&out, sample()); err != nil || !strings.HasPrefix(out.String(), "{\n  \"good\": true,\n  \"bytes\"") {
		t.Errorf("%v %s", err, out.String())
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		values []string
		arg    string
	}{
		{[]string{printer.Text, printer.JSON}, "xml"},
		{[]string{printer.Text, printer.JSON}, ""},
		{[]string{printer.Text, printer.JSON}, "jsonpath={.nodes"},
		{[]string{printer.Text, printer.JSON}, "jsonpath=TEMPLATE{"},
		{[]string{"dot", "svg"}, "yaml"},
		{[]string{"dot", "svg"}, "jsonpath={.a}"},
	} {
		f, err := parse(t, c.values, "-o", c.arg)
		if err == nil {
			t.Errorf("%q is accepted", c.arg)
		}
		if f.String() != c.values[0] {
			t.Errorf("%q: the format is %q", c.arg, f)
		}
	}
}

// TestChoices: JSON brings the others, once.
func TestChoices(t *testing.T) {
	for want, values := range map[string][]string{
		"text, json, yaml or jsonpath=TEMPLATE": {printer.Text, printer.JSON},
		"yaml, json or jsonpath=TEMPLATE":       {printer.YAML, printer.JSON},
		"dot or svg":                            {"dot", "svg"},
	} {
		f, err := parse(t, values)
		if err != nil || f.Choices() != want || !f.Is(values[0]) {
			t.Errorf("%q: %v %q, want %q", values, err, f.Choices(), want)
		}
	}
}
