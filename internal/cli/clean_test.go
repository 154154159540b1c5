// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCleanRefuses checks that clean removes nothing before weft has replaced Calico.
func TestCleanRefuses(t *testing.T) {
	dir, state := manifests(t, calicoCluster), t.TempDir()
	for _, s := range []struct {
		args, says string
		exit       int
	}{
		{"--from flannel", `--from "flannel" is not calico`, 2},
		{"-o xml", `--output "xml" is not text, json, yaml or jsonpath=TEMPLATE`, 2},
		{"--state-dir " + state, "no datastore is named", 2},
		{"--state-dir " + state + " --store-dir " + dir, "4 addresses and blocks of Calico are not imported", 1},
		{"import", "", 0},
		{"policy", "or only in part: 1 (GlobalNetworkPolicy deny (spec.preDNAT and spec.doNotTrack are both set: connections are not tracked, and the destination is not translated))", 1},
		{
			"--drop-calico-policies --state-dir " + state + " --store-dir " + dir,
			"no agent has written a mesh status there", 1,
		},
		{"no policy", "no agent has written a mesh status there", 1},
		{
			"--state-dir " + state + " --store-dir " + dir,
			"no agent has written a mesh status there", 1,
		},
	} {
		args := append([]string{"clean"}, strings.Fields(s.args)...)
		if s.args == "import" {
			args = []string{"ipam", "import", "--from", "calico", "--store-dir", dir}
		}
		policy := filepath.Join(dir, "policy.yaml")
		switch s.args {
		case "policy":
			if err := os.WriteFile(
				policy, []byte("apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: deny}\nspec: {doNotTrack: true, preDNAT: true}\n"), 0o600,
			); err != nil {
				t.Fatal(err)
			}
			args = []string{"clean", "--state-dir", state, "--store-dir", dir}
		case "no policy":
			if err := os.Remove(policy); err != nil {
				t.Fatal(err)
			}
			args = []string{"clean", "--state-dir", state, "--store-dir", dir}
		}
		var stdout, stderr bytes.Buffer
		exit := run(t, Env{Args: args, Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
		if exit != s.exit || !strings.Contains(stderr.String(), s.says) {
			t.Errorf("weft %v: exit %d, want %d with %q; %s%s", args, exit, s.exit, s.says, stdout.String(), stderr.String())
		}
	}
}
