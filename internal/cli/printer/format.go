// SPDX-License-Identifier: Apache-2.0

// Package printer prints results in the formats of -o: as text to read, or for programs as JSON, YAML, or what a JSONPath
// template selects. The names and templates are kubectl's.
package printer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/model"
)

// Formats of -o. Commands may have others of their own.
const (
	Text = "text" // to read; the format of most commands without -o
	JSON = "json" // one document with stable keys
	YAML = "yaml" // the same document
	// Path prefixes a JSONPath template, which is applied to the same document.
	Path = "jsonpath="
)

// Format is the value of -o.
type Format struct {
	values []string
	value  string
	path   *jsonpath.JSONPath
	// noHeaders leaves out the headers of tables.
	noHeaders bool
}

// Flag adds -o with its values, of which the first is the default. JSON brings YAML and JSONPath.
func Flag(fs *pflag.FlagSet, values ...string) *Format {
	if slices.Contains(values, JSON) {
		if !slices.Contains(values, YAML) {
			values = append(slices.Clip(values), YAML)
		}
		values = append(slices.Clip(values), Path+"TEMPLATE")
	}
	f := &Format{values: values, value: values[0]}
	fs.VarP(f, "output", "o", "output `FORMAT`: "+model.OneOf(values))
	return f
}

// String returns the format as it is written on a command line.
func (f *Format) String() string { return f.value }

// Type is the kind of the flag's value.
func (f *Format) Type() string { return "format" }

// Choices says what the flag accepts.
func (f *Format) Choices() string { return model.OneOf(f.values) }

// Values are the formats, for completion; that of a template without it.
func (f *Format) Values() []string {
	out := slices.Clone(f.values)
	for i, v := range out {
		out[i] = strings.TrimSuffix(v, "TEMPLATE")
	}
	return out
}

// errUnknown reports a format that the command does not have.
var errUnknown = errors.New("unknown format")

// Set accepts one of the command's formats.
func (f *Format) Set(s string) error {
	template, isPath := strings.CutPrefix(s, Path)
	if !isPath || !slices.Contains(f.values, Path+"TEMPLATE") {
		if isPath || !slices.Contains(f.values, s) {
			return errUnknown
		}
		f.value, f.path = s, nil
		return nil
	}
	if !strings.Contains(template, "{") { // as kubectl: .nodes and nodes are {.nodes}
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(template); err != nil {
		return model.Errorf(model.CodeInvalidConf, "for example -o jsonpath='{.nodes}'", "the template: %w", err)
	}
	f.value, f.path = s, p
	return nil
}

// Is reports whether a format was asked for.
func (f *Format) Is(format string) bool { return f.value == format }

// Document reports whether the command prints a document for programs: JSON, YAML or what JSONPath selects of it.
func (f *Format) Document() bool { return f.value == JSON || f.value == YAML || f.path != nil }

// Print prints a document, which Document has asked for.
func (f *Format) Print(w io.Writer, document any) error {
	switch {
	case f.path != nil:
		return f.printPath(w, document)
	case f.value == YAML:
		b, err := yaml.Marshal(document)
		if err != nil {
			return fmt.Errorf("output: %w", err)
		}
		_, err = w.Write(b)
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

// printPath prints what the template selects, with a line break as its end.
func (f *Format) printPath(w io.Writer, document any) error {
	b, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	var tree any // with the keys of JSON, and whole numbers as such
	if err := kjson.Unmarshal(b, &tree); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	var out strings.Builder
	if err := f.path.Execute(&out, tree); err != nil {
		return fmt.Errorf("output %s: %w", f.value, err)
	}
	_, err = fmt.Fprintln(w, strings.TrimSuffix(out.String(), "\n"))
	return err
}
