// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/web/page"
)

// TestBillOfMaterials: this test's own program is a Go program with modules and the page; the bill names it, by its
// digest, and them.
func TestBillOfMaterials(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := run(w, "weft", "v1.2.3", time.Unix(1700000000, 0), []string{self}); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("the same program gives two different bills")
	}
	var doc document
	if err := json.Unmarshal(first.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Version != "SPDX-2.3" || doc.Name != "weft-v1.2.3" || doc.Creation.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("document %q of %q, created %q", doc.Version, doc.Name, doc.Creation.Created)
	}
	sum, err := digest(self)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]spdxPackage{doc.ID: {}}
	for _, p := range doc.Packages {
		ids[p.ID] = p
	}
	notices, err := fs.ReadFile(page.Files(), "NOTICES.txt")
	if err != nil {
		t.Fatal(err)
	}
	programs, libraries := 0, 0
	var npm []page.Package
	for _, r := range doc.Relationships {
		p, known := ids[r.Related]
		if _, ok := ids[r.Element]; !ok || !known {
			t.Errorf("%s %s %s: one of them is no package of the document", r.Element, r.Type, r.Related)
		}
		switch r.Type {
		case "DESCRIBES":
			programs++
			if p.Name != filepath.Base(self) || len(p.Checksums) != 1 || p.Checksums[0].Value != sum {
				t.Errorf("program %+v, want %s with the digest %s", p, filepath.Base(self), sum)
			}
		case "CONTAINS":
			npm = append(npm, page.Package{Name: p.Name, Version: p.Version, License: p.License})
			if want := "pkg:npm/" + strings.Replace(p.Name, "@", "%40", 1) + "@" + p.Version; len(p.References) != 1 || p.References[0].Locator != want {
				t.Errorf("package %+v, want the package URL %s", p, want)
			}
		case "STATIC_LINK":
			libraries++
			if p.Version == "" || len(p.References) != 1 ||
				!strings.HasPrefix(p.References[0].Locator, "pkg:golang/"+p.Name+"@") {
				t.Errorf("module %+v has no version or no package URL", p)
			}
		}
	}
	if want := page.Bundled(notices); len(want) < 3 || !slices.Equal(npm, want) {
		t.Errorf("packages of npm %v, want %v", npm, want)
	}
	if programs != 1 || libraries == 0 {
		t.Errorf("%d programs and %d modules, want one program and at least Go's own library", programs, libraries)
	}
}

// TestNoProgram: a file that is no Go program, and a release without a version, are refused.
func TestNoProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		version  string
		programs []string
	}{{"v1", []string{file}}, {"v1", nil}, {"", []string{file}}} {
		if err := run(&bytes.Buffer{}, "weft", c.version, time.Unix(0, 0), c.programs); err == nil {
			t.Errorf("version %q of %v is taken", c.version, c.programs)
		}
	}
}
