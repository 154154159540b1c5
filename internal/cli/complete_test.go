// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestCompletion: names of a cluster and values of flags are completed, by the flags that choose the cluster.
func TestCompletion(t *testing.T) {
	lab := t.TempDir()
	for name, text := range map[string]string{
		"lab.json": "{}", "nodes/node1/x": "", "nodes/node2/x": "",
		"store/x.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n---\n" +
			"apiVersion: v1\nkind: Pod\nmetadata: {name: db, namespace: shop}\n---\n" +
			"apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: blue}\n" +
			"spec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}]}\n",
		"config": "contexts: [{name: test}, {name: production}]\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(lab, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lab, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mesh := meshState(t)
	config := filepath.Join(lab, "config")
	for line, want := range map[string]string{
		"explain --dir " + lab + " ":                        "shop/db shop/web",
		"explain --dir " + lab + " shop/web shop/d":         "shop/db",
		"explain --dir " + lab + " shop/web shop/db ":       "",
		"trace --dir " + lab + " node":                      "node1 node2",
		"policy why --dir " + lab + " shop/web ":            "shop/db shop/web",
		"policy show --dir " + lab + " shop/w":              "shop/web",
		"mesh ping --state-dir " + mesh + " b ":             "far",
		"ipam migrate --dir " + lab + " ":                   "--to blue",
		"ipam migrate --dir " + lab + " red --to b":         "blue",
		"ipam show -o ":                                     "text name json yaml jsonpath=",
		"status --output=j":                                 "json jsonpath=",
		"policy show -o y":                                  "yaml",
		"status --kubeconfig " + config + " --context ":     "production test",
		"ipam show --kubeconfig " + config + " --context t": "test",
		"explain --dir " + lab + "/none ":                   "", // no error in the middle of a command line
	} {
		words := strings.Split(line, " ")
		if got := completed(t, words, nil); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// completed returns what a shell would offer for the last of the words.
func completed(t *testing.T, words []string, env map[string]string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t, Env{
		Args: append([]string{cobra.ShellCompNoDescRequestCmd}, words...), Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return env[name] },
	})
	lines := strings.Fields(out.String())
	if code != 0 || len(lines) == 0 || !strings.HasPrefix(lines[len(lines)-1], ":") {
		t.Fatalf("%q: exit code %d, %q %q", words, code, &out, &errs)
	}
	return strings.Join(lines[:len(lines)-1], " ")
}

// TestCompletionEnds: a server that does not answer completes nothing, and blocks the shell for a few seconds at most.
func TestCompletionEnds(t *testing.T) {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil { // of the test's namespace
		t.Fatalf("%v: %s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'http://" + l.Addr().String() +
		"'}}]\nusers: [{name: c, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: c}}]\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if got := completed(t, []string{"explain", "--kubeconfig", config, ""}, nil); got != "" {
		t.Errorf("%q", got)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("took %s", took)
	}
}
