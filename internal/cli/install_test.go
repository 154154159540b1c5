// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestInstallFlags: a command line that contradicts itself is refused before anything is touched.
func TestInstallFlags(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "--cni-bin-dir is missing: name the runtime's plugin directory, often /opt/cni/bin"},
		{[]string{"--cni-bin-dir", ""}, 2, "--cni-bin-dir is empty"},
		{[]string{"--cni-bin-dir", dir, "bridge"}, 2, `"bridge": install has flags, no arguments`},
		{[]string{"--cni-bin-dir", dir, "-o", "yaml"}, 2, `output "yaml" is neither text nor json`},
		{[]string{"--cni-bin-dir", dir, "--conf-dir", ""}, 2, "--conf-dir is empty"},
		{[]string{"--cni-bin-dir", dir, "--from", ""}, 2, "--from is empty"},
		{
			[]string{
				"--cni-bin-dir", dir, "--watch",
			}, 2, "--watch follows the directory that --conf-dir names, which is missing",
		},
		{
			[]string{
				"--cni-bin-dir", dir, "--multus",
			}, 2, "--multus writes into the directory that --conf-dir names, which is missing",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--multus"},
			2,
			"--remove takes everything back: --multus says nothing there",
		},
		{
			[]string{"--cni-bin-dir", dir, "--socket", "/x"},
			2,
			"--socket is written into the configuration, and --conf-dir is missing",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", "x"},
			2,
			`--socket "x" is no absolute path of at most 102 bytes`,
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", "/" + strings.Repeat("x", 102)},
			2,
			"is no absolute path of at most 102 bytes",
		},
		{[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--socket", ""}, 2, "--socket is empty"},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--plugins"},
			2,
			"--remove takes everything back: --plugins says nothing there",
		},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--replace-foreign"},
			2,
			"--remove takes everything back: --replace-foreign says nothing there",
		},
		{
			[]string{"--cni-bin-dir", dir, "--remove", "--from", "/x"},
			2,
			"--remove takes everything back: --from says nothing there",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--watch"},
			2,
			"--remove takes everything back: --watch says nothing there",
		},
		{
			[]string{"--cni-bin-dir", dir, "--conf-dir", dir, "--remove", "--socket", "/x"},
			2,
			"--remove takes everything back: --socket says nothing there",
		},
		{[]string{"--cni-bin-dir", dir, "--plugins=maybe"}, 2, `invalid argument "maybe" for "--plugins" flag`},
		{[]string{"--bin-dir", dir}, 2, "unknown flag: --bin-dir"},
		{
			[]string{"--cni-bin-dir", "/none", "--remove"},
			1,
			"directory /none does not exist\nhint: name the runtime's plugin directory",
		},
		{[]string{"--cni-bin-dir", "/dev/null", "--remove"}, 1, "/dev/null is no directory"},
		{[]string{"--cni-bin-dir", dir, "--from", "/none"}, 1, "/none/weft-cni is no program of weft's\nhint: make build"},
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
