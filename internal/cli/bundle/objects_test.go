// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
)

// What is recorded of objects is what an explanation reads, and no more: a pod's environment may be secret.
func TestObjects(t *testing.T) {
	cluster := recordedObjects{}
	for _, text := range []string{
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "web", "labels": {"hunter2": "x"},
			"annotations": {"kubevirt.io/domain": "vm1", "note": "hunter2"}}, "spec": {"nodeName": "node1", "hostNetwork": true,
			"containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}],
			"ports": [{"name": "http", "containerPort": 8080}]}]}, "status": {"phase": "Running"}}`,
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "db"}, "spec": {
			"clusterIPs": ["10.96.0.9"], "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}}`,
		`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"namespace": "shop", "name": "db-1",
			"labels": {"kubernetes.io/service-name": "db"}}, "endpoints": [{"addresses": ["10.42.0.9"]}],
			"ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}`,
		`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "hunter2"}}`,
	} {
		o, err := store.NewObject([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		cluster[o.Key] = o
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := writeObjects(t.Context(), cluster, root); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ObjectsFile)
	b, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("%s, %v", b, err)
	}
	got, err := readObjects(path)
	if err != nil {
		t.Fatal(err)
	}
	o, err := got.Get(t.Context(), store.Pods(), store.PodKey("shop", "web"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Pod()
	if err != nil || p.Node != "node1" || !p.HostNetwork || p.Phase != "Running" || len(p.Ports) != 1 ||
		p.Ports[0].Name != "http" || p.Annotations["kubevirt.io/domain"] != "vm1" || len(p.Annotations) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	for kind, want := range map[store.Kind]string{
		store.Services():       `"clusterIPs":["10.96.0.9"]`,
		store.EndpointSlices(): `"kubernetes.io/service-name":"db"`,
	} {
		all, err := got.List(t.Context(), kind)
		if err != nil || len(all) != 1 || !strings.Contains(string(all[0].Raw), want) ||
			!strings.Contains(string(all[0].Raw), `"port":5432`) {
			t.Errorf("%s: %+v, %v", kind.Kind, all, err)
		}
	}
	if _, err := got.Get(t.Context(), store.Nodes(), store.NodeKey("hunter2")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an object that is not recorded: %v", err)
	}
}

// What cannot be listed leaves no file.
func TestUnreadableObjects(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := writeObjects(t.Context(), forbidden{}, root); !errors.Is(err, store.ErrForbidden) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ObjectsFile)); err == nil {
		t.Error("there is a file")
	}
}

type forbidden struct{ recordedObjects }

func (forbidden) List(context.Context, store.Kind) ([]store.Object, error) {
	return nil, store.ErrForbidden
}
