// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cli/ui"
)

func TestPolicyTargets(t *testing.T) {
	f := &policyFlags{namespace: "here"}
	for in, want := range map[string]string{
		"shop/db:5432":        "shop/db 5432 TCP",
		"shop/db:5432/tcp":    "shop/db 5432 TCP",
		"db:53/udp":           "here/db 53 UDP",
		"shop/db:http":        "shop/db http ",
		"shop/db:dns/udp":     "shop/db dns UDP",
		"shop/db":             "shop/db  ",
		"db":                  "here/db  ",
		"192.0.2.7:53/udp":    "192.0.2.7 53 UDP",
		"192.0.2.7":           "192.0.2.7  ",
		"[fd00::7]:443":       "fd00::7 443 TCP",
		"[fd00::7]:9999/sctp": "fd00::7 9999 SCTP",
		"fd00::7":             "fd00::7  ",
		"[fd00::7]":           "fd00::7  ",
	} {
		party, port, protocol, err := f.target(in)
		if got := party + " " + port + " " + protocol; err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"shop/db:Http":    `"shop/db:Http": port "Http" cannot be used`,
		"shop/db:-":       `"shop/db:-": port "-" cannot be used`,
		"shop/db:0":       `"shop/db:0": port "0" cannot be used`,
		"shop/db:80/icmp": `"shop/db:80/icmp": protocol "icmp" is not known`,
		"/db:80":          `"/db" is no pod`,
		"a/b/c":           `"a/b/c" is no pod`,
	} {
		_, _, _, err := f.target(in)
		if !ui.IsUsageError(err) || !strings.HasPrefix(err.Error(), want+" (") {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func runPolicy(args ...string) (code int, stderr string) {
	var out, errs bytes.Buffer
	code = Run(context.Background(), Env{
		Args: append([]string{"policy"}, args...), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
	})
	return code, errs.String()
}

func TestPolicyWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{
			"show --state-dir " + dir, 1, "weft: no agent that obeys network policies answers at " + dir +
				"/admin.sock\nhint: start the agent",
		},
		{"why a b --state-dir " + dir, 1, "no agent that obeys"},
		{"why a", 2, "accepts 2 arg(s)"},
		{"show -o yaml", 2, `-o "yaml" is no output format`},
	} {
		if code, errs := runPolicy(strings.Fields(tt.args)...); code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: %d %s", tt.args, code, errs)
		}
	}
}
