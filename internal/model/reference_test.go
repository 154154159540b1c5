// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"os"
	"regexp"
	"testing"
)

// TestCodesDocumented compares docs/reference/errors.md with the codes in errors.go.
func TestCodesDocumented(t *testing.T) {
	numbers := func(name, row string) map[string]bool {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, m := range regexp.MustCompile(row).FindAllSubmatch(text, -1) {
			out[string(m[1])] = true
		}
		return out
	}
	code := numbers("errors.go", `(?m)^\s+Code\w+\s+Code = (\d+)`)
	page := numbers("../../docs/reference/errors.md", `(?m)^\| (\d+) \|`)
	if len(code) < 10 {
		t.Fatalf("only %d codes found", len(code))
	}
	for n := range code {
		if !page[n] {
			t.Errorf("docs/reference/errors.md lacks code %s", n)
		}
		delete(page, n)
	}
	for n := range page {
		t.Errorf("docs/reference/errors.md has code %s, which does not exist", n)
	}
}
