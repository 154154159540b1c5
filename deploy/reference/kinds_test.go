// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"
)

// TestPage: docs/reference/kinds.md is what the definitions say.
func TestPage(t *testing.T) {
	want, err := kinds("../crds")
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Errorf("%s differs from deploy/crds: go run ./deploy/reference", page)
	}
	for _, row := range []string{"## AddressPool\n", "| `spec.cidr` |", "or `wpool`"} {
		if !strings.Contains(string(want), row) {
			t.Errorf("the page has no %q", row)
		}
	}
}
