// SPDX-License-Identifier: Apache-2.0

package version

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		versions string
		want     Skew
	}{
		{"v0.2.0", Same},
		{"v0.2.0 v0.2.0", Same},
		{"v0.2.0 v0.2.1", Supported},
		{"v0.1.0-rc.1 v0.2.0-29-gd6ab9ec5", Supported},
		{"v0.2.0 v0.1.9 v0.3.0", Unsupported}, // 0.1 and 0.3 are in one cluster
		{"v0.1.0 v0.3.0", Unsupported},
		{"v0.9.0 v1.0.0", Unsupported},
		{"v1.4.0 v1.5.2", Supported},
		{"dev v0.2.0", Unknown},
		{"dev dev", Same},
		{"v0.2 v0.2.0", Unknown},
	} {
		if got := compare(strings.Fields(c.versions)); got != c.want {
			t.Errorf("%s: %s, want %s", c.versions, got, c.want)
		}
	}
}

// lab returns the directory of a lab whose agents have the versions; "" does not run. One of v0.1 does not know the
// request for its version.
func lab(t *testing.T, versions ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "v") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	for i, v := range versions {
		node := "node" + string(rune('1'+i))
		state := filepath.Join(dir, "nodes", node, "agent")
		for _, d := range []string{state, filepath.Join(dir, "store")} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if v == "" {
			continue
		}
		l, err := adminapi.Listen(adminapi.InStateDir(state), slog.New(slog.DiscardHandler))
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		routes := adminapi.Routes{"GET " + adminapi.RouteStatus: func(*http.Request) (any, error) {
			return nodestatus.Status{Node: node, Version: v}, nil
		}}
		if !strings.HasPrefix(v, "v0.1.") {
			routes = adminapi.Routes{"GET " + adminapi.RouteVersion: func(*http.Request) (any, error) {
				return adminapi.Version{Node: node, Version: v}, nil
			}}
		}
		serving.Go(func() { _ = routes.ServeOn(ctx, l, slog.New(slog.DiscardHandler)) })
	}
	if err := os.WriteFile(filepath.Join(dir, "lab.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	env := ui.Env{
		Args: args, Version: "v0.2.0", Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string {
			return map[string]string{"HOME": t.TempDir()}[name] // no kubeconfig
		},
	}
	code = ui.Run(t.Context(), NewCmd(env), env)
	return out.String(), errs.String(), code
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		agents []string
		want   string
		code   int
	}{
		{[]string{"v0.2.0", "v0.2.0"}, "client  v0.2.0\nagents  v0.2.0 on 2 of 2 nodes\n", 0},
		{
			[]string{"v0.2.0", "v0.1.3", "v0.2.0"},
			"client  v0.2.0\nagents  v0.2.0 on 2 of 3 nodes\nagents  v0.1.3 on 1 of 3 nodes: node2\n" +
				"skew    supported: one minor version apart at most\n", 0,
		},
		{
			[]string{"v0.4.0"},
			"client  v0.2.0\nagents  v0.4.0 on 1 of 1 nodes\nskew    unsupported: more than one minor version apart; " +
				"upgrade by one minor version after the other\n", 1,
		},
	} {
		out, errs, code := run(t, "--dir", lab(t, c.agents...))
		if out != c.want || errs != "" || code != c.code {
			t.Errorf("%v: exit code %d, want %d\n%s%s", c.agents, code, c.code, out, errs)
		}
	}
}

// TestSilent: an agent that does not answer is named, and the exit code says so.
func TestSilent(t *testing.T) {
	dir := lab(t, "v0.2.0", "")
	out, _, code := run(t, "--dir", dir)
	if code != 1 || !strings.Contains(out, "v0.2.0 on 1 of 2 nodes\n") || !strings.Contains(out, "no answer  node2: no agent answers at") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, _, code = run(t, "--dir", dir, "-o", "jsonpath={.agents[*].version}")
	if code != 1 || out != "v0.2.0\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
}

// TestClient: without a cluster only the program's version is known; a cluster that is named must be there.
func TestClient(t *testing.T) {
	for _, c := range []struct {
		args   []string
		stderr string
		code   int
	}{
		{[]string{"--client"}, "", 0},
		{[]string{"--client", "--dir", "/nosuch"}, "", 0},
		{[]string{"--dir", "/nosuch"}, "weft: no lab in /nosuch", 1},
	} {
		out, errs, code := run(t, c.args...)
		if out != "client  v0.2.0\n" || code != c.code || !strings.HasPrefix(errs, c.stderr) || c.stderr == "" && errs != "" {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, out, errs)
		}
	}
}
