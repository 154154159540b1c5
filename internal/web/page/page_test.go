// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/web/page"
)

// maxPage is the size of the whole page, compressed.
const maxPage = 100_000

// files returns the files of the page.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	names, err := fs.Glob(page.Files(), "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if out[name], err = fs.ReadFile(page.Files(), name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestSize(t *testing.T) {
	var all bytes.Buffer
	z := gzip.NewWriter(&all)
	for _, b := range files(t) {
		if _, err := z.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if all.Len() > maxPage {
		t.Errorf("the page has %d bytes compressed, more than %d", all.Len(), maxPage)
	}
	t.Logf("the page has %d bytes compressed", all.Len())
}

// The page loads nothing from elsewhere, and needs neither inline scripts nor inline styles, which its policy forbids.
func TestSources(t *testing.T) {
	address := regexp.MustCompile(`(https?:)?//[a-zA-Z0-9.-]+\.[a-z]{2,}[^\s"'` + "`" + `]*`)
	for name, b := range files(t) {
		if name == "NOTICES.txt" {
			continue
		}
		for _, a := range address.FindAllString(string(b), -1) {
			if a = strings.TrimPrefix(strings.TrimPrefix(a, "http:"), "https:"); !strings.HasPrefix(a, "//www.w3.org/") { // namespaces
				t.Errorf("%s has the address %s", name, a)
			}
		}
	}
	html := string(files(t)["index.html"])
	if regexp.MustCompile(`(?s)<script[^>]*>\s*[^<\s]|<style|\son[a-z]+=|\sstyle=`).MatchString(html) {
		t.Errorf("index.html has an inline script or style: %s", html)
	}
}

func TestNotices(t *testing.T) {
	notices := string(files(t)["NOTICES.txt"])
	for _, want := range []string{"MIT License", "Jason Miller", "Leon Sorokin"} {
		if !strings.Contains(notices, want) {
			t.Errorf("NOTICES.txt lacks %q", want)
		}
	}
	if got, want := page.Bundled([]byte("x\n"+notices+"\n== other 1.0 (MIT)\n")), locked(t); !slices.Equal(got, want) {
		t.Errorf("bundled are %v, in the lock file %v", got, want)
	}
	if got := page.Bundled([]byte("weft's page has code of these packages. == a 1 (b)")); got != nil {
		t.Errorf("bundled are %v in what is no page", got)
	}
}

// locked returns the packages of the lock file that the page needs, sorted as NOTICES.txt has them.
func locked(t *testing.T) (out []page.Package) {
	t.Helper()
	b, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct {
			Version, License string
			Dev              bool
		}
	}
	if err := json.Unmarshal(b, &lock); err != nil {
		t.Fatal(err)
	}
	for path, p := range lock.Packages {
		if name, is := strings.CutPrefix(path, "node_modules/"); is && !p.Dev {
			out = append(out, page.Package{Name: name, Version: p.Version, License: p.License})
		}
	}
	slices.SortFunc(out, func(a, b page.Package) int { // preact, then what is for it
		return cmp.Or(cmp.Compare(strings.Count(a.Name, "/"), strings.Count(b.Name, "/")), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// The files are what the sources and the packages of the lock file make.
func TestRebuild(t *testing.T) {
	nettest.EndToEnd(t)
	npm, err := exec.LookPath("npm")
	if err != nil {
		nettest.SkipMissing(t, "npm is not installed")
	}
	dir, out := t.TempDir(), t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command(npm, "ci", "--ignore-scripts", "--omit=dev", "--prefer-offline", "--no-audit", "--no-fund")
	install.Dir = dir
	if text, err := install.CombinedOutput(); err != nil {
		nettest.SkipMissing(t, "npm cannot fetch the packages: "+string(text))
	}
	build := exec.Command("go", "run", ".", "-packages", filepath.Join(dir, "node_modules"), "-o", out)
	build.Dir = "build"
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for name, have := range files(t) {
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("files/%s is not what the sources make (%v): run make web", name, err)
		}
	}
}
