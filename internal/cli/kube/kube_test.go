// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cli/kube"
	"github.com/weft-net/weft/internal/cli/ui"
)

// TestOpen opens files that are not kubeconfigs: the error names the one that was chosen.
func TestOpen(t *testing.T) {
	home := t.TempDir()
	own := filepath.Join(home, ".kube", "config")
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, []byte("no: [kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flag string
		env  map[string]string
		want string // in the error; empty: nothing is found
	}{
		"nothing":  {env: map[string]string{"HOME": t.TempDir()}},
		"no home":  {},
		"the flag": {flag: "/flag", env: map[string]string{"KUBECONFIG": "/env", "HOME": home}, want: `"/flag"`},
		"the variable": {
			env: map[string]string{"KUBECONFIG": "/env", "HOME": home, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}, want: `"/env"`,
		},
		"in a pod": {
			env: map[string]string{"HOME": home, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}, want: "KUBERNETES_SERVICE_PORT",
		},
		"kubectl's own": {env: map[string]string{"HOME": home}, want: own},
	} {
		t.Run(name, func(t *testing.T) {
			_, found, err := kube.Open(ui.Env{Getenv: func(key string) string { return tt.env[key] }}, tt.flag, "")
			if found != (tt.want != "") {
				t.Fatalf("found %t, %v", found, err)
			}
			if found && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v does not name %s", err, tt.want)
			}
		})
	}
}
