// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCNIValidate(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.conflist": `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}]}`,
		"typo.conf":     `{"cniVersion":"0.2.0","name":"n","type":"bridge","brige":"br0","ipam":{"type":"host-local","subnet":"10.0.0.0/24"}}`,
		"bad.conf":      `{"cniVersion":"0.2.0","name":"n","type":"bridge","vlan":7000}`,
		"broken.conf":   "{\n\"name\":",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args   string
		code   int
		stdout string
	}{
		{"good.conflist", 0, `network "n", cniVersion 1.0.0, plugins [ptp]: no errors, no warnings`},
		{"good.conflist --strict", 0, "no errors"},
		{"typo.conf", 0, `warning: plugins[0] bridge: unknown key "brige" (did you mean bridge?)`},
		{"typo.conf --strict", 1, "unknown key"},
		{"bad.conf", 1, "error: plugins[0] bridge: plugin bridge: vlan 7000 is not between 0 and 4094"},
		{"broken.conf", 1, "error: network configuration: line 2 column"},
		{"absent.conf", 1, ""},
		{"good.conflist -o xml", 2, ""},
		{"", 2, ""},
	} {
		args := []string{"cni", "validate"}
		for i, a := range strings.Fields(tc.args) {
			if i == 0 {
				a = filepath.Join(dir, a)
			}
			args = append(args, a)
		}
		var stdout, stderr bytes.Buffer
		code := Run(context.Background(), Env{
			Args: args, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr,
			Getenv: func(string) string { return "" },
		})
		if code != tc.code || !strings.Contains(stdout.String(), tc.stdout) {
			t.Errorf("weft cni validate %s: exit %d, want %d\nstdout: %s\nstderr: %s", tc.args, code, tc.code, &stdout, &stderr)
		}
		if code != 0 && !strings.HasPrefix(stderr.String(), "weft: ") {
			t.Errorf("weft cni validate %s: stderr %q", tc.args, &stderr)
		}
	}
}

func TestCNIValidateJSON(t *testing.T) {
	conf := `{"cniVersion":"1.0.0","name":"n","type":"bridge","brige":"br0","vlan":7000}`
	var stdout, stderr bytes.Buffer
	code := Run(context.Background(), Env{
		Args: []string{"cni", "validate", "-", "-o", "json"}, Stdin: strings.NewReader(conf), Stdout: &stdout,
		Stderr: &stderr, Getenv: func(string) string { return "" },
	})
	var got struct {
		File, Network, CNIVersion string
		OK                        bool
		Plugins                   []string
		Errors                    []struct {
			Where, Message, Hint string
			Code                 int
		}
		Warnings []struct{ Where, Field, Message, Hint string }
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if code != 1 || got.OK || got.Network != "n" || len(got.Errors) != 1 || got.Errors[0].Code != 7 ||
		len(got.Warnings) != 1 || got.Warnings[0].Field != "brige" {
		t.Errorf("exit %d, %+v", code, got)
	}
}
