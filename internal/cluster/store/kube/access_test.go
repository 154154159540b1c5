// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A context chooses the server and the namespace, of one kubeconfig or of several, as kubectl does.
func TestContext(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for _, name := range []string{"one", "two"} {
		file := filepath.Join(dir, name)
		text := strings.ReplaceAll(`{"apiVersion": "v1", "kind": "Config", "current-context": "one",
"clusters": [{"name": "NAME", "cluster": {"server": "https://NAME"}}], "users": [{"name": "NAME", "user": {}}],
"contexts": [{"name": "NAME", "context": {"cluster": "NAME", "user": "NAME", "namespace": "of-NAME"}}]}`, "NAME", name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	both := strings.Join(append(files, filepath.Join(dir, "missing")), string(filepath.ListSeparator))
	for _, c := range []struct{ kubeconfig, context, host, namespace, fails string }{
		{files[0], "", "https://one", "of-one", ""},
		{files[1], "two", "https://two", "of-two", ""},
		{both, "", "https://one", "of-one", ""},
		{both, "two", "https://two", "of-two", ""},
		{files[0], "two", "", "default", `context "two" is not in kubeconfig`},
		{filepath.Join(dir, "missing"), "", "", "default", "no such file"},
	} {
		a := Access{Kubeconfig: c.kubeconfig, Context: c.context, Getenv: os.Getenv}
		cfg, err := a.Config()
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || cfg.Host != c.host:
			t.Errorf("%+v: %+v, %v", c, cfg, err)
		}
		if got := a.Namespace(); got != c.namespace {
			t.Errorf("%+v: namespace %q", c, got)
		}
	}
}
