// SPDX-License-Identifier: Apache-2.0

// Command sbom writes the software bill of materials of a release: which modules, in which versions, the programs are
// built of, and which packages of npm are in the page of `weft ui`. It reads what the Go linker has written into the
// programs, and the notices of the page in them, so it cannot name what is not in them: `make release`.
//
//	go run ./deploy/sbom -name weft -version VERSION -created SECONDS PROGRAM... > FILE
//
// The document is SPDX 2.3 in JSON (https://spdx.github.io/spdx-spec/v2.3), which needs no network to be made. The same
// programs give the same bytes.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/web/page"
)

func main() {
	name := flag.String("name", "weft", "the release's `NAME`")
	version := flag.String("version", "", "the release's `VERSION`")
	created := flag.Int64("created", 0, "when, in `SECONDS` since 1970")
	flag.Parse()
	if err := run(os.Stdout, *name, *version, time.Unix(*created, 0), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// The parts of an SPDX document that are used (clauses 6 to 11 of the specification).
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID            string        `json:"SPDXID"`
		Name          string        `json:"name"`
		Version       string        `json:"versionInfo"`
		Location      string        `json:"downloadLocation"`
		FilesAnalyzed bool          `json:"filesAnalyzed"`
		License       string        `json:"licenseDeclared,omitempty"`
		Purpose       string        `json:"primaryPackagePurpose,omitempty"`
		Checksums     []checksum    `json:"checksums,omitempty"`
		References    []externalRef `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	externalRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

// run writes the document about programs.
func run(w io.Writer, name, version string, created time.Time, programs []string) error {
	if version == "" || len(programs) == 0 {
		return errors.New("-version and at least one program are needed")
	}
	doc := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name + "-" + version,
		Creation: creation{Created: created.UTC().Format(time.RFC3339), Creators: []string{"Tool: weft-sbom"}},
	}
	all := sha256.New()
	modules := map[string]bool{}
	for _, path := range slices.Sorted(slices.Values(programs)) {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		sum, err := digest(path)
		if err != nil {
			return err
		}
		all.Write([]byte(sum))
		program := program(path, version, info, sum)
		doc.Packages = append(doc.Packages, program)
		doc.relate(doc.ID, "DESCRIBES", program.ID)
		for _, m := range linked(info) {
			p := module(m)
			if !modules[p.ID] {
				modules[p.ID] = true
				doc.Packages = append(doc.Packages, p)
			}
			doc.relate(program.ID, "STATIC_LINK", p.ID)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, b := range page.Bundled(content) {
			p := bundled(b)
			if !modules[p.ID] {
				modules[p.ID] = true
				doc.Packages = append(doc.Packages, p)
			}
			doc.relate(program.ID, "CONTAINS", p.ID)
		}
	}
	slices.SortFunc(doc.Packages, func(a, b spdxPackage) int { return cmp.Compare(a.ID, b.ID) })
	doc.Namespace = "https://github.com/weft-net/weft/spdx/" + doc.Name + "-" + hex.EncodeToString(all.Sum(nil)[:16])
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(doc)
}

func (d *document) relate(element, kind, related string) {
	d.Relationships = append(d.Relationships, relationship{element, kind, related})
}

// digest is the SHA-256 of a file.
func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// program is a program of the release as a package. Programs of several architectures are distinguished by their digest.
func program(path, version string, info *debug.BuildInfo, sum string) spdxPackage {
	return spdxPackage{
		ID: id("program", filepath.Base(path), setting(info, "GOARCH"), sum[:12]), Name: filepath.Base(path),
		Version:  version,
		Location: "NOASSERTION", Purpose: "APPLICATION", Checksums: []checksum{{"SHA256", sum}},
	}
}

// linked are the modules that a program is built of, Go's own library among them; a module that is replaced is the one
// in its place.
func linked(info *debug.BuildInfo) []debug.Module {
	out := []debug.Module{{Path: "stdlib", Version: info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, *m)
	}
	return out
}

func module(m debug.Module) spdxPackage {
	return spdxPackage{
		ID: id("module", m.Path, m.Version), Name: m.Path, Version: m.Version, Location: "NOASSERTION",
		References: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + m.Version}},
	}
}

// bundled is a package of npm in the page.
func bundled(b page.Package) spdxPackage {
	return spdxPackage{
		ID: id("npm", b.Name, b.Version), Name: b.Name, Version: b.Version, Location: "NOASSERTION", License: b.License,
		References: []externalRef{{"PACKAGE-MANAGER", "purl", "pkg:npm/" + strings.ReplaceAll(b.Name, "@", "%40") + "@" + b.Version}},
	}
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// id makes an SPDX identifier: letters, digits, dots and dashes.
func id(parts ...string) string {
	out := "SPDXRef"
	for _, p := range parts {
		out += "-" + regexp.MustCompile(`[^A-Za-z0-9.]+`).ReplaceAllString(p, "-")
	}
	return out
}
