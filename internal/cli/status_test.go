// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/nodestatus"
)

// The state of 1,000 agents is one answer; those that do not run, and those that hang, are named, and the rest is shown
// nevertheless.
func TestStatusOfManyNodes(t *testing.T) {
	const nodes, hanging = 1000, 200
	dir, err := os.MkdirTemp("", "ws") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{"lab.json": "{}", "store/x.yaml": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	t.Cleanup(func() { cancel(); serving.Wait() })
	for i := range nodes {
		node := fmt.Sprintf("node%d", i+1)
		state := filepath.Join(dir, "nodes", node, "agent")
		if err := os.MkdirAll(state, 0o700); err != nil {
			t.Fatal(err)
		}
		if i == 7 {
			continue // its agent does not run
		}
		l, err := adminapi.Listen(adminapi.InStateDir(state), slog.New(slog.DiscardHandler))
		if err != nil || l == nil {
			t.Fatal(l, err)
		}
		serving.Go(func() {
			_ = adminapi.Routes{"GET " + adminapi.RouteStatus: func(r *http.Request) (any, error) {
				if i >= nodes-hanging {
					<-r.Context().Done() // until the client gives up
				}
				return nodestatus.Status{Node: node, Version: "v1", Attachments: 20}, nil
			}}.ServeOn(ctx, l, slog.New(slog.DiscardHandler))
		})
	}
	const answered = nodes - hanging - 1
	var c nodestatus.Cluster
	var code int
	for try := 0; try < 5 && c.Answered != answered; try++ { // on a busy host not all answer within the command's five seconds
		var out, errs strings.Builder
		begin := time.Now()
		code = Run(t.Context(), Env{
			Args: []string{"status", "--dir", dir, "-o", "json"}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
		})
		t.Logf("took %s", time.Since(begin))
		c = nodestatus.Cluster{}
		if err := json.Unmarshal([]byte(out.String()), &c); err != nil {
			t.Fatalf("%v: %s%s", err, &out, &errs)
		}
	}
	if code != 1 || c.Nodes != nodes || c.Answered != answered || c.Total.Attachments != 20*answered ||
		len(c.Findings) != hanging+1 || c.Findings[0].Node != "node8" || c.Findings[1].Node != "node801" {
		t.Errorf("exit code %d, %d of %d answered, findings %+v", code, c.Answered, c.Nodes, c.Findings)
	}
}

// --wait asks an API server again that does not answer, or not as it should; the error is that of the last attempt.
func TestStatusWaits(t *testing.T) {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil { // of the test's namespace
		t.Fatalf("%v: %s", err, out)
	}
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := asked.Add(1); n > 1 && strings.HasPrefix(r.URL.Path, "/api/v1/pods") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind": "PodList", "apiVersion": "v1", "items": []}`))
			return
		}
		http.Error(w, "starting", http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "c", "user": {}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	status := func(args ...string) (int, string) {
		var out, errs strings.Builder
		code := Run(t.Context(), Env{
			Args: append([]string{"status", "--kubeconfig", kubeconfig}, args...), Stdout: &out, Stderr: &errs,
			Getenv: func(string) string { return "" },
		})
		return code, errs.String()
	}
	if code, errs := status(); code != 1 || asked.Load() != 1 || strings.Contains(errs, "last attempt") {
		t.Errorf("without --wait: exit code %d, %d requests: %s", code, asked.Load(), errs)
	}
	asked.Store(0)
	if code, errs := status("--wait", "3s"); code != 1 || asked.Load() < 2 ||
		!strings.Contains(errs, "the last attempt within 3s: no pod of weft's agent is in the cluster") {
		t.Errorf("with --wait: exit code %d, %d requests: %s", code, asked.Load(), errs)
	}
}

// The pools and what is wrong with them are in the answer although no agent knows them.
func TestStatusOfDatastore(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lab.json": "{}", "nodes/x": "",
		"store/x.yaml": `{apiVersion: weft.dev/v1alpha1, kind: AddressPool, metadata: {name: p},
spec: {regions: [{cidr: 10.0.0.0/24, blockSize: 28}]}}
---
{apiVersion: weft.dev/v1alpha1, kind: AddressBlock, metadata: {name: q-10-0-0-0-28},
spec: {pool: q, cidr: 10.0.0.0/28, node: a, claim: "1"}}
`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs strings.Builder
	Run(t.Context(), Env{
		Args: []string{"status", "--dir", dir}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
	})
	for _, want := range []string{
		"pool p       0 blocks of nodes, 0 addresses used, 0 free",
		`warn: cluster: ipam check: AddressBlock q-10-0-0-0-28: there is no pool "q"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s%s", want, &out, &errs)
		}
	}
}
