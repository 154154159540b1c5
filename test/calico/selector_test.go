// SPDX-License-Identifier: Apache-2.0

package calico_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestSelectors: Calico's own parser and weft's find the same texts valid, which match the same labels. weft also accepts
// line breaks, and a space before the parentheses of a function. Those are left out here, and global(), which Calico accepts
// only as the whole selector of namespaces of a rule.
func TestSelectors(t *testing.T) {
	dir := os.Getenv(calicoDir)
	if dir == "" {
		nettest.SkipMissing(t, calicoDir+" is not set: make takeover builds Calico's programs and runs this test")
	}
	const count = 20000
	type question struct {
		Selector string            `json:"selector"`
		Labels   map[string]string `json:"labels"`
	}
	r := rand.New(rand.NewPCG(1, 2))
	var asked []question
	var in bytes.Buffer
	for range count {
		q := question{strings.Join(expressionTokens(r, 3), ""), map[string]string{}}
		for _, label := range []string{"a", "b", "in", "x.y/z-1", "has"} {
			if r.IntN(2) == 0 {
				q.Labels[label] = expressionValues()[r.IntN(len(expressionValues()))]
			}
		}
		asked = append(asked, q)
		if err := json.NewEncoder(&in).Encode(q); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "selectors"))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers, valid, wrong := json.NewDecoder(bytes.NewReader(out)), 0, 0
	for _, q := range asked {
		var theirs struct{ Valid, Matches bool }
		if err := answers.Decode(&theirs); err != nil {
			t.Fatal(err)
		}
		if theirs.Valid {
			valid++
		}
		e, err := model.ParseExpression(q.Selector)
		if matches := err == nil && e.Matches(q.Labels); (err == nil) == theirs.Valid && matches == theirs.Matches {
			continue
		}
		if wrong++; wrong <= 20 {
			t.Errorf("%q with %v: Calico: %+v; weft: %v", q.Selector, q.Labels, theirs, err)
		}
	}
	if t.Logf("%d of %d selectors are valid", valid, count); valid < count/3 {
		t.Error("too few selectors are valid")
	}
}

func expressionValues() []string { return []string{"", "x", "xy", "y'", "x y", "in"} }

// expressionTokens returns an expression with the spaces between its tokens. One of some has a token too many or too few.
func expressionTokens(r *rand.Rand, depth int) []string {
	one := func(all ...string) string { return all[r.IntN(len(all))] }
	value := func() string {
		v := expressionValues()[r.IntN(len(expressionValues()))]
		if strings.Contains(v, "'") || r.IntN(2) == 0 {
			return `"` + v + `"`
		}
		return "'" + v + "'"
	}
	space := func() string { return one("", " ", " ", "\t", "  ") }
	label := one("a", "b", "c", "x.y/z-1", "in", "not", "has", "all", "contains", "startswith")
	var out []string
	switch kind := r.IntN(12); {
	case kind < 3 && depth > 0:
		joint := one("&&", "||")
		out = append(append(append(expressionTokens(r, depth-1), space(), joint, space()), expressionTokens(r, depth-1)...), space())
	case kind == 3 && depth > 0:
		out = append(append([]string{"("}, expressionTokens(r, depth-1)...), space(), ")")
	case kind == 4 && depth > 0:
		out = append([]string{one("!", "! ", "!!")}, expressionTokens(r, depth-1)...)
	case kind == 5:
		out = []string{one("has(", "has( "), label, space(), ")"}
	case kind == 6:
		out = []string{one("all()", "all( )", "")}
	case kind == 7 || kind == 8:
		out = []string{label, space(), one("==", "!=", "="), space(), value()}
	case kind == 9:
		out = []string{
			label, one(" ", "  ", "\t", ""), one("contains", "starts with", "ends with", "starts  with", "startswith", "endswith", "in", "not"), space(), value(),
		}
	default:
		out = []string{label, one(" ", "  "), one("in", "not in", "not  in", "notin"), space(), "{"}
		for range r.IntN(3) {
			out = append(out, value(), space(), one(",", ",", ", ", ""))
		}
		out = append(out, "}")
	}
	if r.IntN(40) == 0 {
		i := r.IntN(len(out))
		out[i] = one("", out[i]+out[i], ")", "&", "é", `"`, "0")
	}
	return out
}
