// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

// generated are the files that tools/generate.sh writes, from the repository's root.
func generated() []string {
	return []string{
		"api/v1alpha1/zz_generated.*.go", "deploy/crds/weft.dev_*.yaml",
		"pkg/client/clientset.go", "pkg/client/scheme/*.go", "pkg/client/typed/api/v1alpha1/*.go",
	}
}

// away is what Go says when a module is not in the cache and cannot be had.
var away = regexp.MustCompile(
	`dial tcp|no such host|i/o timeout|connection refused|module lookup disabled|Client\.Timeout exceeded`,
)

// TestGenerated: the deep copies, deploy/crds and pkg/client are what the generators make of the types.
func TestGenerated(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(tree(t, root, "tools/*")) == 0 { // read here, so that a result in Go's cache is not one of other generators
		t.Fatal("there are no generators")
	}
	fresh := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, filepath.Join(root, "tools", "generate.sh"), fresh)
	if text, err := run.CombinedOutput(); err != nil {
		if away.Match(text) {
			nettest.SkipMissing(t, "the generators of tools/go.mod cannot be built: "+string(text))
		}
		t.Fatalf("%v\n%s", err, text)
	}
	for _, pattern := range generated() {
		have, want := tree(t, root, pattern), tree(t, fresh, pattern)
		if len(want) == 0 {
			t.Errorf("nothing was made of %s", pattern)
		}
		if d := cmp.Diff(have, want); d != "" {
			t.Errorf("%s is not what the types say; run `make generate` (-have +want):\n%s", pattern, d)
		}
	}
}

// tree is the text of each file that a pattern chooses below a directory.
func tree(t *testing.T, dir, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(file)] = string(text)
	}
	return out
}
