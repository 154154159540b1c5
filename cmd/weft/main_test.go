// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// kubectl is the real kubectl, from where test/kube/build.sh puts it.
func kubectl(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("WEFT_KUBE_BIN_DIR")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(home, ".cache/weft/kube-v1.36.3/bin")
	}
	path := filepath.Join(dir, "kubectl")
	if _, err := os.Stat(path); err != nil {
		nettest.SkipMissing(t, "no kubectl in "+dir+": build it with test/kube/build.sh, or set WEFT_KUBE_BIN_DIR")
	}
	return path
}

// link builds weft and returns a directory with it and its link kubectl-weft.
func link(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink("weft", filepath.Join(dir, "kubectl-weft")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs a program with variables, and returns its output and its exit code.
func run(t *testing.T, variables []string, program string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), variables...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Under the name kubectl-weft, help and hints are what is typed for kubectl's plugin; under its own name they are not.
func TestPluginName(t *testing.T) {
	nettest.EndToEnd(t)
	dir := link(t)
	for name, want := range map[string]string{"kubectl-weft": "kubectl weft", "weft": "weft"} {
		for args, text := range map[string]string{
			"status --help": "Usage:\n  " + want + " status [flags]",
			"trace --help":  "Examples:\n  " + want + " trace shop/web shop/db:5432",
			"statos":        "did you mean `" + want + " status`?",
			"explain a":     "hint: for example `" + want + " explain shop/web shop/db:5432`",
		} {
			if out, _ := run(t, nil, filepath.Join(dir, name), strings.Fields(args)...); !strings.Contains(out, text) {
				t.Errorf("%s %s: %q is missing:\n%s", name, args, text, out)
			}
		}
	}
}

// kubectl finds the plugin, which asks the cluster of --kubeconfig and --context, as kubectl does, and passes its exit
// code on.
func TestKubectl(t *testing.T) {
	nettest.EndToEnd(t)
	program, dir := kubectl(t), link(t)
	var asked [2]atomic.Int32
	var urls [2]any
	for i := range asked {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked[i].Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "items": []}`))
		}))
		t.Cleanup(server.Close)
		urls[i] = server.URL
	}
	kubeconfig := filepath.Join(dir, "config")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "one",
"clusters": [{"name": "one", "cluster": {"server": %q}}, {"name": "two", "cluster": {"server": %q}}],
"users": [{"name": "u", "user": {}}],
"contexts": [{"name": "one", "context": {"cluster": "one", "user": "u"}}, {"name": "two", "context": {"cluster": "two", "user": "u"}}]}`,
		urls[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	for _, c := range []struct {
		args     string
		variable string
		code     int
		one, two int32
		want     string
	}{
		{"status --kubeconfig " + kubeconfig, "", 1, 1, 0, "no pod of weft's agent is in the cluster"},
		{"status --context two", "KUBECONFIG=" + kubeconfig, 1, 0, 1, "no pod of weft's agent is in the cluster"},
		{"explain -n shop web db:80 --context two --kubeconfig " + kubeconfig, "", 1, 0, 1, "no pod of weft's agent"},
		{"trace web db:80", "KUBECONFIG=" + kubeconfig, 1, 1, 0, "no pod of weft's agent"},
		{"policy why web db:80", "KUBECONFIG=" + kubeconfig, 1, 1, 0, "no pod of weft's agent"},
		{"status --context three", "KUBECONFIG=" + kubeconfig, 1, 0, 0, `context "three" is not in kubeconfig`},
		{"status --context two", "KUBECONFIG=", 2, 0, 0, `--context "two": there is no kubeconfig`},
		{"statos", "", 2, 0, 0, "did you mean `kubectl weft status`?"},
	} {
		asked[0].Store(0)
		asked[1].Store(0)
		argv := append([]string{"weft"}, strings.Fields(c.args)...)
		out, code := run(t, []string{path, "HOME=" + dir, c.variable}, program, argv...)
		if code != c.code || asked[0].Load() != c.one || asked[1].Load() != c.two || !strings.Contains(out, c.want) {
			t.Errorf("kubectl weft %s: exit code %d, asked %d and %d times: %s", c.args, code, asked[0].Load(), asked[1].Load(), out)
		}
	}
	if out, _ := run(t, []string{path, "HOME=" + dir}, program, "plugin", "list"); !strings.Contains(out, "kubectl-weft") {
		t.Errorf("kubectl plugin list: %s", out)
	}
}
