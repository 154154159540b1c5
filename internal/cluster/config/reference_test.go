// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reference/configuration.md")

const page = "../../../docs/reference/configuration.md"

// TestReference compares docs/reference/configuration.md with the comments and the defaults in config.go.
func TestReference(t *testing.T) {
	says := map[string]string{}
	for _, name := range []string{"config.go", "pool.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(says, comments(file))
	}
	got := reference(t, says)
	taken := filepath.Join(t.TempDir(), "weft.yaml")
	if err := os.WriteFile(taken, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(taken); err != nil || c.Network.Mode != ModeCluster || c.Install.BinDir == "" {
		t.Errorf("the example: %+v %v", c, err)
	}
	if *update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), got); diff != "" {
		t.Errorf("go test ./internal/cluster/config -run TestReference -update\n%s", diff)
	}
}

// comments are those of the file's types, with their line breaks, and of their fields, each in one line, as "Type" and
// "Type.Field".
func comments(file *ast.File) map[string]string {
	out := map[string]string{}
	oneLine := func(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		spec := g.Specs[0].(*ast.TypeSpec)
		out[spec.Name.Name] = strings.TrimSpace(g.Doc.Text())
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				out[spec.Name.Name+"."+f.Names[0].Name] = oneLine(f.Doc)
			}
		}
	}
	return out
}

const intro = `<!-- Made of internal/cluster/config/config.go by go test ./internal/cluster/config -run TestReference -update -->
# The agent's configuration

` + "`weft agent --config FILE`" + ` reads one file, YAML or JSON; in Kubernetes, the key ` + "`weft.yaml`" + ` of the ConfigMap ` + "`weft`" + `
([install weft on a cluster](../tasks/kubernetes.md)). Every key is optional. Flags of the command line override the
file. An unknown key, an invalid value and one that is not supported yet are errors that name the key, and the agent
does not start.

` + "```yaml" + `
` + example + "```" + `

That is a node's own network in a cluster, for an agent that is not a pod. ` + "`weft doctor --config FILE`" + ` checks the
node that such a file describes.

`

// example is a file that the agent takes; TestReference reads it.
const example = `kubernetes: {kubeconfig: /etc/kubernetes/weft.conf}
network: {mode: cluster}
runtime: {endpoint: auto}
install: {confDir: /etc/cni/net.d, binDir: /opt/cni/bin}
metrics: {address: "127.0.0.1:9119"}
`

// reference is the page.
func reference(t *testing.T, says map[string]string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(intro)
	root := reflect.ValueOf(Default())
	table(t, &b, says, "", root)
	for i := range root.NumField() {
		if f := root.Type().Field(i); f.Type.Kind() == reflect.Struct {
			key := f.Tag.Get("json")
			b.WriteString("\n## " + key + "\n\n" + says[f.Type.Name()] + "\n\n")
			table(t, &b, says, key+".", root.Field(i))
			for j := range f.Type.NumField() { // of a list of objects, what each has
				if list := f.Type.Field(j).Type; list.Kind() == reflect.Slice && says[list.Elem().Name()] != "" {
					name := key + "." + f.Type.Field(j).Tag.Get("json") + "[]"
					b.WriteString("\n### " + name + "\n\n" + says[list.Elem().Name()] + "\n\n")
					table(t, &b, says, name+".", reflect.Zero(list.Elem()))
				}
			}
		}
	}
	return b.String()
}

func table(t *testing.T, b *strings.Builder, says map[string]string, prefix string, v reflect.Value) {
	t.Helper()
	b.WriteString("| key | type | default | |\n|---|---|---|---|\n")
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type.Kind() == reflect.Struct && f.Type.Name() != "Prefix" {
			continue
		}
		name := v.Type().Name() + "." + f.Name
		text, ok := strings.CutPrefix(says[name], f.Name+" ")
		if !ok {
			t.Errorf("the comment of %s does not begin with its name", name)
		}
		text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
		value, err := json.Marshal(v.Field(i).Interface())
		if err != nil {
			t.Fatal(err)
		}
		def := "`" + strings.Trim(string(value), `"`) + "`"
		if v.Field(i).IsZero() && f.Type.Name() != "Level" {
			def = ""
		}
		b.WriteString("| `" + prefix + f.Tag.Get("json") + "` | " + kind(f.Type) + " | " + def + " | " + text + " |\n")
	}
}

// kind is what a reader calls a type.
func kind(t reflect.Type) string {
	switch {
	case t.Name() == "Duration":
		return "time"
	case t.Name() == "Level":
		return "level"
	case t.Name() == "Prefix":
		return "prefix"
	case t.Kind() == reflect.Slice && t.Elem().Name() == "Pool":
		return "list of objects"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return "list of texts"
	case t.Kind() == reflect.Slice:
		return "list of prefixes"
	case t.Kind() == reflect.Int:
		return "number"
	case t.Kind() == reflect.Bool:
		return "true, false"
	}
	return "text"
}
