// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOriginal: the ConfigMap's cni-conf.json of kube-flannel is written where flannel's installation has it, and the
// agent's conflist sorts before it; both follow the ConfigMap.
func TestOriginal(t *testing.T) {
	c := Config{ConfDir: t.TempDir()}
	theirs, err := os.ReadFile("testdata/flannel/10-net.conflist")
	if err != nil {
		t.Fatal(err)
	}
	mounted := filepath.Join(t.TempDir(), "cni-conf.json")
	source, form := filepath.Join(c.ConfDir, "10-flannel.conflist"), filepath.Join(c.ConfDir, "00-weft.conflist")
	if err := Original(t.Context(), c, mounted); err != nil {
		t.Errorf("no ConfigMap: %v", err)
	}
	if _, err := os.Stat(source); err == nil {
		t.Error("a file of nothing")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Follow(ctx, c, func([]Change, error) {}) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for _, text := range []string{
		string(theirs), strings.Replace(string(theirs), `"hairpinMode": true`, `"mtu": 1300`, 1),
	} {
		if err := os.WriteFile(mounted, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Original(t.Context(), c, mounted); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(source); string(b) != text {
			t.Errorf("%s: %s", source, b)
		}
		want, err := derive(source, []byte(text), c)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the form", func() bool { b, _ := os.ReadFile(form); return bytes.Equal(b, want) })
	}
	was, _ := os.Stat(source)
	if err := Original(t.Context(), c, mounted); err != nil {
		t.Error(err)
	}
	if is, _ := os.Stat(source); !os.SameFile(was, is) {
		t.Error("the same text is written again")
	}
	if err := os.WriteFile(mounted, []byte(`{"name":"cbr0"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Original(t.Context(), c, mounted); err == nil ||
		!strings.Contains(err.Error(), "unexpected end of JSON input") {
		t.Errorf("half a file: %v", err)
	}
	if b, _ := os.ReadFile(source); !strings.Contains(string(b), "1300") {
		t.Errorf("half a file was put in place: %s", b)
	}
}
