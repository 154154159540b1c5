// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/policy"
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
		peer, port, protocol, err := f.target(in)
		if got := peer + " " + port + " " + protocol; err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", in, got, err, want)
		}
	}
	for in, want := range map[string]string{
		"shop/db:Http":    `"shop/db:Http": port "Http" cannot be used`,
		"shop/db:-":       `"shop/db:-": port "-" cannot be used`,
		"shop/db:0":       `"shop/db:0": port "0" cannot be used`,
		"shop/db:80/icmp": `"shop/db:80/icmp": protocol "icmp" is not known`,
		"/db:80":          `"/db" is not a pod`,
		"a/b/c":           `"a/b/c" is not a pod`,
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
			"show --state-dir " + dir, 1, "weft: no agent that enforces network policies answers at " + dir +
				"/admin.sock\nhint: start the agent",
		},
		{"why a b --state-dir " + dir, 1, "no agent that enforces"},
		{"why a", 2, "argument TO[:PORT[/PROTOCOL]] is missing"},
		{"show -o xml", 2, `--output "xml" is not text, name, json, yaml or jsonpath=TEMPLATE`},
	} {
		if code, errs := runPolicy(strings.Fields(tt.args)...); code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%s: %d %s", tt.args, code, errs)
		}
	}
}

// A lab, and with kubectl a cluster, is asked by any agent that answers. What it refuses is not asked again.
func TestPolicyOfCluster(t *testing.T) {
	dir, err := os.MkdirTemp("", "wp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, name := range []string{"store", "nodes/n1/agent", "nodes/n2/agent", "nodes/n3/agent"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lab.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	var asked atomic.Int32
	for _, node := range []string{"n2", "n3"} { // the agent of n1 does not run
		l, err := adminapi.Listen(adminapi.InStateDir(filepath.Join(dir, "nodes", node, "agent")),
			slog.New(slog.DiscardHandler))
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		serving.Go(func() {
			_ = adminapi.Routes{"GET " + policy.Prefix + "/why": func(r *http.Request) (any, error) {
				asked.Add(1)
				return nil, model.Errorf(model.CodeInvalidConf, "a hint", "%s: no pod %s", node, r.FormValue("from"))
			}}.ServeOn(ctx, l, slog.New(slog.DiscardHandler))
		})
	}
	if code, errs := runPolicy("why", "web", "db", "--dir", dir); code != 1 || asked.Load() != 1 ||
		!strings.Contains(errs, "node n2: n2: no pod default/web\nhint: a hint") {
		t.Errorf("exit code %d, %d requests: %s", code, asked.Load(), errs)
	}
}

// A name without a namespace is in that of the kubeconfig's context, unless -n names one.
func TestNamespaceOfContext(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": "https://c"}}], "users": [{"name": "c", "user": {}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "shop"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	source := agents.Source{
		Env: Env{Getenv: func(key string) string { return map[string]string{"KUBECONFIG": kubeconfig}[key] }},
	}
	for namespace, want := range map[string]string{"": "shop", "own": "own"} {
		f := explainFlags{source: &source, namespace: namespace}
		q, err := f.parse("web", "db:80")
		if err != nil || q.from != want+"/web" || q.to != want+"/db" {
			t.Errorf("-n %q: %+v, %v", namespace, q, err)
		}
	}
}
