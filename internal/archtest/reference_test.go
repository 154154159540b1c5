// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wordSet are the string values of the product's sources: literals, and sums of them and of constants of their package.
type wordSet struct {
	all map[string]bool
	// constants are by package directory and name; those of package store are known everywhere.
	constants map[string]string
}

// productWords reads the strings of all sources but tests.
func productWords(t *testing.T) wordSet {
	t.Helper()
	w := wordSet{all: map[string]bool{}, constants: map[string]string{}}
	var files []*source
	for _, s := range sources(t) {
		if !s.test() && s.in("internal", "cmd", "pkg") && !s.in("internal/archtest", "internal/nettest", "internal/apitest") {
			files = append(files, s)
		}
	}
	for _, s := range files {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, v := range spec.Values {
					if text, ok := w.value(s.dir, v); ok && i < len(spec.Names) {
						w.constants[s.dir+"."+spec.Names[i].Name] = text
					}
				}
			}
			return true
		})
	}
	for _, s := range files {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if text, ok := w.value(s.dir, e); ok {
					w.all[text] = true
				}
			}
			return true
		})
	}
	return w
}

// value returns the value of a constant text expression. An unknown operand of a sum counts as "…".
func (w wordSet) value(dir string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.Ident:
		text, ok := w.constants[dir+"."+e.Name]
		return text, ok
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		x, okX := w.value(dir, e.X)
		y, okY := w.value(dir, e.Y)
		if !okX {
			x = "…"
		}
		if !okY {
			y = "…"
		}
		return x + y, okX || okY
	}
	return "", false
}

var (
	firstCell = regexp.MustCompile(`^\| *((?:[^|\\]|\\.)*?) *\|`)
	inQuotes  = regexp.MustCompile("`([^`]+)`")
	verb      = regexp.MustCompile(`%(?:\[\d+\])?[-+# 0]*[\d.]*[a-zA-Z]`)
)

// cells returns what is in backquotes in the first cells of the tables whose header f accepts.
func cells(text string, f func(header string) bool) (out []string) {
	header, wanted := "", false
	for line := range strings.Lines(text) {
		m := firstCell.FindStringSubmatch(line)
		switch {
		case m == nil:
			header = ""
			continue
		case header == "":
			header, wanted = m[1]+" ", f(m[1])
			continue
		}
		if wanted {
			for _, q := range inQuotes.FindAllStringSubmatch(m[1], -1) {
				out = append(out, q[1])
			}
		}
	}
	return out
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// messages turns format strings into texts with "…" for what is filled in.
func (w wordSet) messages() []string {
	var out []string
	for text := range w.all {
		if strings.Contains(text, " ") {
			out = append(out, verb.ReplaceAllString(text, "…"))
		}
	}
	return out
}

// says reports whether one of the messages contains the parts of a documented one, in order; "…" stands for anything.
func says(messages []string, documented string) bool {
	var parts []string
	for part := range strings.SplitSeq(documented, "…") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, regexp.QuoteMeta(part))
		}
	}
	want := regexp.MustCompile(strings.Join(parts, ".*"))
	return slices.ContainsFunc(messages, want.MatchString)
}

// TestMessagesOfTheDocuments: what the tables whose first column is "Message" or "Symptom" quote is printed by weft.
func TestMessagesOfTheDocuments(t *testing.T) {
	w := productWords(t)
	messages, n := w.messages(), 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, quoted := range cells(string(text), func(h string) bool { return h == "Message" || h == "Symptom" }) {
			n++
			if !w.all[quoted] && !says(messages, quoted) {
				t.Errorf("%s: no source has the message %q", file, quoted)
			}
		}
	}
	if n < 25 {
		t.Fatalf("only %d messages found", n)
	}
}

// TestSays: a message is found though its values are other ones, and not if a word differs.
func TestSays(t *testing.T) {
	messages := wordSet{all: map[string]bool{"ipam: address %s is taken by %s": true}}.messages()
	for text, want := range map[string]bool{
		"address … is taken by …": true, "is taken by": true, "address … was taken": false, "taken … address": false,
	} {
		if got := says(messages, text); got != want {
			t.Errorf("says(%q) = %v", text, got)
		}
	}
}

// annotation is a name of an annotation, a label or a finalizer.
var annotation = regexp.MustCompile(`^(?:[a-z0-9-]+\.)+[a-z]+/[A-Za-z][\w.-]*$`)

// noAnnotation reports whether a text that looks like an annotation is something else.
func noAnnotation(text string) bool {
	domain, name, _ := strings.Cut(text, "/")
	switch domain {
	case "k8s.cni.cncf.io": // attributes of ResourceSlices
		return true
	case "weft.dev", "k8s.v1.cni.cncf.io", "v1.multus-cni.io", "vm.kubevirt.io", "kubernetes.io", "sidecar.istio.io",
		"projectcalico.org", "cni.projectcalico.org", "qos.projectcalico.org", "kubevirt.io", "flannel.alpha.coreos.com":
	default: // a program, an image, another module
		return true
	}
	return regexp.MustCompile(`^v\d`).MatchString(name) || // an API group and its version
		name == "Understood" || name == "LoadBalancerIPs" || // conditions
		text == "weft.dev/blocks.json"
}

// TestAnnotationsDocumented compares docs/reference/annotations.md with the names in the source.
func TestAnnotationsDocumented(t *testing.T) {
	w := productWords(t)
	text := page(t, "docs/reference/annotations.md")
	have := map[string]bool{}
	for _, name := range cells(text, func(h string) bool {
		return strings.HasPrefix(h, "Annotation") || strings.HasPrefix(h, "Label")
	}) {
		have[name] = true
	}
	if len(have) < 25 {
		t.Fatalf("only %d names in the page", len(have))
	}
	found := map[string]bool{}
	for name := range w.all {
		if suffix, ok := strings.CutPrefix(name, "…"); ok {
			found["flannel.alpha.coreos.com/"+suffix] = true // flannel.KeysOf: names under a configured prefix
		}
		if annotation.MatchString(name) && !noAnnotation(name) {
			found[name] = true
			if !have[name] && !strings.HasPrefix(name, "cni.projectcalico.org/") &&
				!strings.HasPrefix(name, "qos.projectcalico.org/") {
				t.Errorf("docs/reference/annotations.md lacks %s", name)
			}
		}
	}
	for name := range have {
		if !found[name] && name != "kubevirt.io" && !strings.HasSuffix(name, "/…") {
			t.Errorf("docs/reference/annotations.md has %s, which no source has", name)
		}
	}
	flannel := page(t, "internal/flannel/annotation.go")
	for _, m := range regexp.MustCompile(`p \+ "([\w-]+)"`).FindAllStringSubmatch(flannel, -1) {
		if !have["flannel.alpha.coreos.com/"+m[1]] {
			t.Errorf("docs/reference/annotations.md lacks flannel's %s", m[1])
		}
	}
	plugin := page(t, "docs/reference/plugins/calico.md")
	for name := range w.all {
		for _, prefix := range []string{"cni.projectcalico.org/", "qos.projectcalico.org/"} {
			if rest, ok := strings.CutPrefix(name, prefix); ok && regexp.MustCompile(`^[a-z]\w+$`).MatchString(rest) &&
				!strings.Contains(text+plugin, "`"+rest+"`") && !have[name] {
				t.Errorf("docs/reference/annotations.md and plugins/calico.md lack %s", name)
			}
		}
	}
}

// TestConditionsDocumented compares docs/reference/events.md with the types of conditions in the source.
func TestConditionsDocumented(t *testing.T) {
	have := map[string]bool{}
	for _, name := range cells(page(t, "docs/reference/events.md"), func(h string) bool { return h == "Condition" }) {
		have[name] = true
	}
	found := map[string]bool{}
	declared := regexp.MustCompile(
		`(?m)^\s*(?:const )?(?:Condition\w+|understood)\s+= "([\w./]+)"|"type":\s+"(\w+)", "status": "`,
	)
	for _, s := range sources(t) {
		if s.test() || !s.in("internal") || s.in("internal/archtest", "internal/apitest") {
			continue
		}
		for _, m := range declared.FindAllStringSubmatch(s.text, -1) {
			found[m[1]+m[2]] = true
		}
	}
	if len(found) < 4 {
		t.Fatalf("only the conditions %v found", found)
	}
	for name := range found {
		if !have[name] {
			t.Errorf("docs/reference/events.md lacks the condition %s", name)
		}
	}
	for name := range have {
		if !found[name] {
			t.Errorf("docs/reference/events.md has the condition %s, which no source has", name)
		}
	}
}

// reasonsIn returns the reasons of events and of conditions in the source: those of literals of model.Event and
// model.Condition, and constants that are named or typed as reasons.
func reasonsIn(t *testing.T) (events, conditions map[string]bool) {
	t.Helper()
	w := productWords(t)
	events, conditions = map[string]bool{}, map[string]bool{}
	add := func(s *source, into map[string]bool, e ast.Expr) {
		if text, ok := w.value(s.dir, e); ok && regexp.MustCompile(`^[A-Z][A-Za-z]+$`).MatchString(text) {
			into[text] = true
		}
	}
	named := regexp.MustCompile(`^(event|reason|Reason)[A-Z]\w*$`)
	for _, s := range sources(t) {
		if s.test() || !s.in("internal") || s.in("internal/archtest", "internal/apitest", "internal/nettest", "internal/lab") {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				typ, _ := n.Type.(*ast.Ident)
				for i, name := range n.Names {
					m := named.FindStringSubmatch(name.Name)
					switch {
					case i >= len(n.Values) || m == nil && (typ == nil || typ.Name != "Reason"):
					case m != nil && (m[1] == "event" || s.in("internal/multinet")):
						add(s, events, n.Values[i])
					default:
						add(s, conditions, n.Values[i])
					}
				}
			case *ast.CompositeLit:
				typ, _ := n.Type.(*ast.SelectorExpr)
				if typ == nil || typ.Sel.Name != "Event" && typ.Sel.Name != "Condition" {
					return true
				}
				for _, e := range n.Elts {
					kv, ok := e.(*ast.KeyValueExpr)
					if !ok {
						continue
					}
					if key, is := kv.Key.(*ast.Ident); is && key.Name == "Reason" {
						add(s, map[bool]map[string]bool{true: events, false: conditions}[typ.Sel.Name == "Event"], kv.Value)
					}
				}
			}
			return true
		})
	}
	return events, conditions
}

// TestReasonsDocumented compares docs/reference/events.md with the reasons of events and conditions in the source.
func TestReasonsDocumented(t *testing.T) {
	text := page(t, "docs/reference/events.md")
	events, conditions := reasonsIn(t)
	for header, found := range map[string]map[string]bool{"Event": events, "Reason": conditions} {
		if len(found) < 10 {
			t.Fatalf("%s: only %v found", header, found)
		}
		have := map[string]bool{}
		for _, name := range cells(text, func(h string) bool { return h == header }) {
			have[name] = true
			if !found[name] {
				t.Errorf("docs/reference/events.md has the %s %s, which no source has", header, name)
			}
		}
		for name := range found {
			if !have[name] {
				t.Errorf("docs/reference/events.md lacks the %s %s", header, name)
			}
		}
	}
}
