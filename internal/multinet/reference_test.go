// SPDX-License-Identifier: Apache-2.0

package multinet_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEventsDocumented compares docs/reference/events.md with the reasons of events in the code.
func TestEventsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	first, _, _ := strings.Cut(string(page), "| Condition |")
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(first, -1) {
		have[m[1]] = true
	}
	inEvent := regexp.MustCompile(`model\.Event\{[^}]*Reason: "(\w+)"`)
	constants := map[string]*regexp.Regexp{ // by package: a condition's reason is a constant of the same form
		"multinet":     regexp.MustCompile(`(?m)^\s*(?:const )?Reason\w+\s*= "(\w+)"`),
		"containers":   regexp.MustCompile(`(?m)^const event\w+ = "(\w+)"`),
		"controller":   regexp.MustCompile(`(?m)^\s*event\w+\s*= "(\w+)"`),
		"networkcheck": regexp.MustCompile(`(?m)^\s*event\w+\s*= "(\w+)"`),
	}
	found := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		matches := inEvent.FindAllSubmatch(text, -1)
		if constant := constants[filepath.Base(filepath.Dir(path))]; constant != nil {
			matches = append(matches, constant.FindAllSubmatch(text, -1)...)
		}
		for _, m := range matches {
			found[string(m[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("only %d reasons found", len(found))
	}
	for reason := range found {
		if !have[reason] {
			t.Errorf("docs/reference/events.md lacks %s", reason)
		}
	}
	for reason := range have {
		if !found[reason] {
			t.Errorf("docs/reference/events.md has %s, which no code writes", reason)
		}
	}
}
