// SPDX-License-Identifier: Apache-2.0

package stateformat

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	text := func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	if err := Claim(dir, "v1", Formats{"a": 1}); err != nil { // a directory from before the file
		t.Fatal(err)
	}
	if err := Claim(dir, "v2", Formats{"a": 2, "b": 1}); err != nil {
		t.Fatal(err)
	}
	newest := text()
	err := Claim(dir, "v1", Formats{"a": 1})
	if err == nil || !strings.Contains(err.Error(), "weft v2") || !strings.Contains(err.Error(), "a has format 2") ||
		strings.Contains(err.Error(), "b has") {
		t.Errorf("an earlier program: %v", err)
	}
	if text() != newest {
		t.Errorf("a refused program wrote\n%s", text())
	}
	// b is of a later version, which this program does not touch: a roll back continues, and the entry stays.
	if err := Claim(dir, "v1.1", Formats{"a": 2}); err != nil || !strings.Contains(text(), `"b": 1`) {
		t.Errorf("a file that is not known: %v\n%s", err, text())
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Claim(dir, "v2", Formats{"a": 2}); err == nil || text() != "{" {
		t.Errorf("an unreadable file: %v\n%s", err, text())
	}
}
