// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
)

// What a user may not do is named as the RBAC rule that is missing, once; with each rule the next one is named. The API
// server is a real one.
func TestMissingRights(t *testing.T) {
	nettest.EndToEnd(t)
	s := apitest.Start(t, nil, netip.MustParseAddr("127.0.0.1"))
	b, err := os.ReadFile(s.Kubeconfig(s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := t.TempDir() + "/config"
	user := strings.Replace(string(b), `"token":`, `"as": "alice", "token":`, 1)
	if err := os.WriteFile(kubeconfig, []byte(user), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2"} {
		pod := map[string]any{
			"metadata": map[string]any{"name": "weft-" + node, "labels": map[string]any{"app.kubernetes.io/name": "weft"}},
			"spec":     map[string]any{"nodeName": node, "containers": []any{map[string]any{"name": "agent", "image": "weft"}}},
			"status":   map[string]any{"phase": "Running"},
		}
		s.Do(http.MethodPost, "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": node}})
		s.Do(http.MethodPost, "/api/v1/namespaces/kube-system/pods", pod)
		s.Do(http.MethodPut, "/api/v1/namespaces/kube-system/pods/weft-"+node+"/status", pod)
	}
	allow := func(resource, verb string) {
		name := strings.ReplaceAll(resource, "/", "-")
		s.Do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterroles", map[string]any{
			"metadata": map[string]any{"name": name},
			"rules":    []any{map[string]any{"apiGroups": []any{""}, "resources": []any{resource}, "verbs": []any{verb}}},
		})
		s.Do(http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", map[string]any{
			"metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}},
		})
	}
	for _, step := range []struct{ allow, verb, want string }{
		{"", "", "`kubectl auth can-i list pods -A`"},
		{"pods", "list", "`kubectl auth can-i list nodes -A`"},
		{"nodes", "list", "`kubectl auth can-i get pods --subresource=exec -n kube-system`"},
	} {
		if step.allow != "" {
			allow(step.allow, step.verb)
		}
		for _, args := range [][]string{{"status"}, {"explain", "web", "db"}, {"trace", "web", "db"}} {
			for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) { // the authorizer has a cache
				var out, errs strings.Builder
				code := Run(t.Context(), Env{
					Args: append(args, "--kubeconfig", kubeconfig), Stdout: &out, Stderr: &errs,
					Getenv: func(string) string { return "" },
				})
				text := errs.String() + out.String()
				if code == 1 && strings.Count(text, step.want) == 1 && strings.Count(text, "\n") == 2 {
					t.Logf("%s", text)
					break
				}
				if time.Now().After(until) {
					t.Fatalf("%q: want %s, exit code %d:\n%s", args, step.want, code, text)
				}
			}
		}
	}
}
