// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestInstallFlags checks that flags that contradict each other are rejected before anything is changed.
func TestInstallFlags(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "--cni-bin-dir is missing"},
		{[]string{"--cni-bin-dir", ""}, 2, "--cni-bin-dir is empty"},
		{[]string{"--cni-bin-dir", dir, "bridge"}, 2, `unexpected argument "bridge"`},
		{[]string{"--cni-bin-dir", dir, "-o", "xml"}, 2, `--output "xml" is not text, json, yaml or jsonpath=TEMPLATE`},
		{[]string{"--cni-bin-dir", dir, "--conf-dir", ""}, 2, "--conf-dir is empty"},
		{[]string{"--cni-bin-dir", dir, "--from", ""}, 2, "--from is empty"},
		{
			[]string{
				"--cni-bin-dir", dir, "--watch",
			}, 2, "--watch follows the directory of --conf-dir, which is missing",
		},
		{
			[]string{
				"--cni-bin-dir", dir, "--multus",
			}, 2, "--multus writes into the directory of --conf-dir, which is missing",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--multus"},
			2,
			"--multus has no effect with --remove, which removes everything",
		},
		{
			[]string{"--cni-bin-dir", dir, "--socket", "/x"},
			2,
			"--socket is written into the configuration of --conf-dir, which is missing",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", "x"},
			2,
			`--socket "x" is not an absolute path of at most 102 bytes`,
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", "/" + strings.Repeat("x", 102)},
			2,
			"is not an absolute path of at most 102 bytes",
		},
		{[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", ""}, 2, "--socket is empty"},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--plugins"},
			2,
			"--plugins has no effect with --remove, which removes everything",
		},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--replace-foreign"},
			2,
			"--replace-foreign has no effect with --remove, which removes everything",
		},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--from", "/x"},
			2,
			"--from has no effect with --remove, which removes everything",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--watch"},
			2,
			"--watch has no effect with --remove, which removes everything",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--socket", "/x"},
			2,
			"--socket has no effect with --remove, which removes everything",
		},
		{[]string{"--cni-bin-dir", dir, "--plugins=maybe"}, 2, `--plugins "maybe" is not true or false`},
		{[]string{"--bin-dir", dir}, 2, "unknown flag --bin-dir"},
		{
			[]string{"--cni-bin-dir", "/none", "--remove"},
			1,
			"directory /none does not exist\nhint: name the runtime's plugin directory",
		},
		{[]string{"--cni-bin-dir", "/dev/null", "--remove"}, 1, "/dev/null is not a directory"},
		{[]string{"--cni-bin-dir", dir, "--from", "/none"}, 1, "/none/weft-cni is not a weft program\nhint: `make build`"},
		{[]string{"--cni-bin-dir", dir, "--remove", "-o", "json"}, 0, `{"changes":[]}`},
	} {
		var out bytes.Buffer
		code := Run(context.Background(), Env{
			Args: append([]string{"install"}, x.args...), Stdout: &out, Stderr: &out,
			Getenv: func(string) string { return "" }, Self: "/nowhere/weft",
		})
		got := strings.ReplaceAll(strings.TrimSpace(out.String()), "weft: ", "")
		if code != x.code || !strings.Contains(got, x.want) {
			t.Errorf("%q: code %d, %q; want %d, %q", x.args, code, got, x.code, x.want)
		}
	}
}
