// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/nettest"
)

// account creates a service account with all permissions, and returns a token of it that is bound to a secret.
func (k *kubeWorld) account() string {
	k.t.Helper()
	k.Do("POST", "/api/v1/namespaces/kube-system/serviceaccounts", fields{"metadata": fields{"name": "weft"}})
	k.Do("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fields{
		"metadata": fields{
			"name": "weft",
		}, "roleRef": fields{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []fields{{"kind": "ServiceAccount", "name": "weft", "namespace": "kube-system"}},
	})
	var made struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(
		k.Do("POST", "/api/v1/namespaces/kube-system/secrets", fields{"metadata": fields{"name": "bound"}}), &made,
	); err != nil {
		k.t.Fatal(err)
	}
	return k.Token("kube-system", "weft", "Secret", "bound", made.Metadata.UID)
}

// without checks that no file below a directory contains the words.
func without(t *testing.T, dir string, words ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		for _, word := range words {
			if bytes.Contains(b, []byte(word)) {
				t.Errorf("the token is in %s", path)
			}
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%s: %d files, error %v", dir, files, err)
	}
}

// TestUnknownPods counts the requests of ADDs to the API server for pods that are not in the agent's cache, with a
// server that responds and with one that hangs. The agent's token is sent to its own server only.
func TestUnknownPods(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	w := k.nodes[0]
	token := k.account()
	w.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, name: pods}\n", w.path("net.d")))
	w.args = []string{
		"--node", "n1", "--kubeconfig", k.Kubeconfig(k.Proxy.URL, token), "--config", w.path("weft.yaml"),
		"--log-level", "debug",
	}
	w.start()
	known := k.pod("known", 1)
	k.known(1, "known")
	other := k.pod("other", 2)
	k.annotated("mirror-n1", 2, map[string]string{
		"kubernetes.io/config.hash": "0123456789abcdef", "kubernetes.io/config.source": "file",
	})
	const lookup = "GET /api/v1/namespaces/default/pods/"
	for _, c := range []struct {
		name, pod, uid string
		asked          []string
	}{
		{"known", "known", known, nil},
		{"not in the informer", "other", other, []string{lookup + "other"}},
		{"static, its picture in the API", "mirror-n1", "0123456789abcdef", []string{lookup + "mirror-n1"}},
		{"static, not in the API yet", "early-n1", "fedcba9876543210", []string{lookup + "early-n1"}},
	} {
		p := k.sandbox(c.pod, c.uid, 1)
		k.Reset()
		start := time.Now()
		err := p.add()
		for end := time.Now().Add(time.Minute); code(err) == 11 && time.Now().Before(end); err = p.add() {
			k.Reset() // the server of a busy host may not answer in a second
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, w.log())
		}
		t.Logf("ADD, pod %s: %v", c.name, time.Since(start).Round(time.Millisecond))
		// A report about a pod after its ADD may request the pod again if it is refused.
		seen := k.Seen()
		if i := slices.IndexFunc(seen, func(r apitest.Request) bool {
			return r.Method == "PATCH" && strings.Contains(r.Path, "/pods/"+c.pod+"/")
		}); i >= 0 {
			seen = seen[:i]
		}
		asked := slices.DeleteFunc(waited(seen), func(r string) bool {
			return strings.HasPrefix(r, lookup) && !strings.HasSuffix(r, "/"+c.pod)
		})
		if got := fmt.Sprint(asked); got != fmt.Sprint(c.asked) {
			t.Errorf("%s: asked for %s, want %s", c.name, got, c.asked)
		}
	}
	hang := make(chan struct{})
	k.Refuse(func(*http.Request) int {
		select {
		case <-hang:
		case <-time.After(20 * time.Second):
		}
		return http.StatusServiceUnavailable
	})
	p := k.sandbox("hangs", "1", 1)
	k.Reset()
	start := time.Now()
	if err := p.add(); code(err) != 11 {
		t.Errorf("a server that hangs: %v, want code 11", err)
	}
	t.Logf("ADD, the server hangs: %v", time.Since(start).Round(time.Millisecond))
	close(hang)
	k.Refuse(nil)
	if got := fmt.Sprint(k.waited()); got != "["+lookup+"hangs]" {
		t.Errorf("a server that hangs was asked for %s", got)
	}
	w.stop()
	without(t, w.path("state"), token)
	without(t, w.path("net.d"), token)
	without(t, w.path("cache"), token)
	without(t, w.dir, token) // the log among it
}
