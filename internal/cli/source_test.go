// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestClusterFlags checks that each command that reads a kubeconfig also accepts a context of it, and a lab.
func TestClusterFlags(t *testing.T) {
	env := Env{Getenv: func(string) string { return "" }}
	// These use the kubeconfig of a node, in its configuration.
	serves := map[string]bool{"weft agent": true, "weft install": true}
	checked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Flags().Lookup("kubeconfig") != nil && !serves[c.CommandPath()] {
			checked++
			for _, flag := range []string{"context", "dir"} {
				if c.Flags().Lookup(flag) == nil {
					t.Errorf("%s has --kubeconfig and no --%s", c.CommandPath(), flag)
				}
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(env))
	walk(programs(t)["weft-agent"].root(env))
	if checked < 12 {
		t.Errorf("only %d commands are checked", checked)
	}
}

// TestDatastoreSource checks which datastore weft ipam reads: a flag wins over the environment, and that over the
// kubeconfig.
func TestDatastoreSource(t *testing.T) {
	base := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, lab := range []string{"one", "two"} {
		write(lab+"/store/pool.yaml", "apiVersion: weft.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: "+lab+"}\n"+
			"spec: {cidrs: [{cidr: 10.0.0.0/24, blockSize: 28}]}\n")
	}
	kubeconfig := write("config", "apiVersion: v1\nkind: Config\ncontexts: []\n")
	at := func(lab string) string { return filepath.Join(base, lab) }
	for _, c := range []struct {
		args []string
		env  map[string]string
		exit int
		want string
	}{
		{[]string{"--dir", at("one")}, nil, 0, "one\n"},
		{nil, map[string]string{"WEFT_LAB": at("one")}, 0, "one\n"},
		{nil, map[string]string{"WEFT_LAB": at("one"), "KUBECONFIG": kubeconfig}, 0, "one\n"},
		{[]string{"--dir", at("two")}, map[string]string{"WEFT_LAB": at("one")}, 0, "two\n"},
		{[]string{"--store-dir", at("two/store")}, map[string]string{"WEFT_LAB": at("one")}, 0, "two\n"},
		{[]string{"--context", "c1"}, map[string]string{"WEFT_LAB": at("one"), "KUBECONFIG": kubeconfig}, 1, `"c1"`},
		{nil, map[string]string{"WEFT_CONTEXT": "c2", "KUBECONFIG": kubeconfig}, 1, `"c2"`},
		{[]string{"--context", "c1"}, map[string]string{"WEFT_CONTEXT": "c2", "KUBECONFIG": kubeconfig}, 1, `"c1"`},
		{[]string{"--dir", at("none")}, nil, 1, at("none/store")},
		{[]string{"--dir", at("one"), "--context", "c"}, nil, 2, "--context"},
		{[]string{"--dir", at("one"), "--kubeconfig", kubeconfig}, nil, 2, "--kubeconfig"},
	} {
		var out, errs bytes.Buffer
		code := run(t, Env{
			Args: append([]string{"ipam", "show", "-o", "name"}, c.args...), Stdout: &out, Stderr: &errs,
			Getenv: func(name string) string { return c.env[name] },
		})
		if got := out.String() + errs.String(); code != c.exit || !strings.Contains(got, c.want) {
			t.Errorf("%q with %v: exit code %d, want %d with %q:\n%s", c.args, c.env, code, c.exit, c.want, got)
		}
	}
}
