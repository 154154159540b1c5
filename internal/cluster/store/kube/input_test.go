// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
)

// TestAccess is what is wrong with a way to the server, in words that name field and value.
func TestAccess(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(string) string { return "" }
	for name, c := range map[string]struct {
		access kube.Access
		want   string
	}{
		"no file": {
			kube.Access{Kubeconfig: dir + "/none"}, `kubernetes.kubeconfig "` + dir + `/none": stat ` + dir +
				"/none: no such file or directory",
		},
		"no yaml": {kube.Access{Kubeconfig: broken}, `kubernetes.kubeconfig "` + broken + `": error loading config file`},
		"no pod": {
			kube.Access{
				InCluster: true,
			}, `kubernetes.inCluster true: KUBERNETES_SERVICE_HOST "" and KUBERNETES_SERVICE_PORT "" are not those of a pod`,
		},
		"no authority": {
			kube.Access{InCluster: true, Server: "https://10.0.0.1:6443", Secrets: dir},
			"API server https://10.0.0.1:6443: open " + dir + "/ca.crt: no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.access.Getenv = none
			_, err := kube.Open(config(t, c.access, ""))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	cfg := config(t, kube.Access{InCluster: true, Getenv: none}, "")
	cfg.Node = "Node_1"
	if _, err := kube.Open(cfg); err == nil || !strings.Contains(err.Error(), `node "Node_1" cannot be used`) {
		t.Errorf("name of the node: %v", err)
	}
}

func config(t *testing.T, access kube.Access, dir string) kube.Config {
	return kube.Config{
		Access: access, Node: "n1", Dir: dir, Agent: "weft/test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now, After: time.After,
	}
}

// TestSnapshot starts without a server and with arbitrary files in the state directory.
func TestSnapshot(t *testing.T) {
	const good = `{"version":1,"node":"n1","objects":[
		{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"u","annotations":{"a":"b"}},"spec":{"nodeName":"n1"}},
		{"apiVersion":"v1","kind":"Pod","metadata":{"name":"../p","namespace":"default"}}, 7]}`
	for name, c := range map[string]struct {
		text  string
		known bool
	}{
		"good": {good, true}, "none": {"", false}, "cut off": {good[:200], false},
		"of another node":    {strings.Replace(good, `"n1"`, `"n2"`, 1), false},
		"of another version": {strings.Replace(good, `1`, `2`, 1), false}, "no object": {"[]", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "pods.json"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			kubeconfig := filepath.Join(dir, "config")
			if err := os.WriteFile(
				kubeconfig,
				[]byte(
					`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
				"contexts":[{"name":"c","context":{"cluster":"c"}}]}`), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := kube.Open(config(t, kube.Access{Kubeconfig: kubeconfig}, dir))
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Pod(context.Background(), model.PodRef{Namespace: "default", Name: "p", UID: "u"})
			if c.known != (err == nil) || c.known && p.Annotations["a"] != "b" {
				t.Errorf("%+v %v", p, err)
			}
			want := "Pod default/p is not cached, and the API server does not answer"
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}
