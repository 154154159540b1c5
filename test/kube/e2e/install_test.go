// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInstall: a new user installs weft with weft cluster in a cluster without a network. It says why an image that does
// not exist is not ready; with the right one nodes become ready and pods reach each other. A change of the configuration
// replaces the agents, while pods reach each other; the removal leaves nothing that the release made.
func TestInstall(t *testing.T) {
	kube(t)
	program := filepath.Join(t.TempDir(), "weft-cluster")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", program, "../../../cmd/weft-cluster")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := Cluster{name: "inst", cni: "weft"}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := c.call(ctx, "", "up", "--name", c.name, "--cni", "none", "--no-dns"); err != nil {
		t.Fatalf("%v%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := c.call(context.Background(), "", "down", "--name", c.name); err != nil {
			t.Errorf("%v%s", err, out)
		}
	})
	image, err := filepath.Abs("../../../bin/weft-image.tar")
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "load", image)
	weft := func(args ...string) (string, error) {
		return c.try("exec", append([]string{"control", program}, args...)...)
	}
	_, err = weft("install", "--set", "image.tag=nosuch", "--set", "image.pullPolicy=Never", "--timeout", "20s")
	if err == nil || !strings.Contains(err.Error(), "ErrImageNeverPull") || !strings.Contains(err.Error(), " on node") {
		t.Errorf("an image that does not exist: %v", err)
	}
	if out, err := weft("status"); err == nil || !strings.Contains(out+fmt.Sprint(err), "ErrImageNeverPull") {
		t.Errorf("its status: %s%v", out, err)
	}
	began := time.Now()
	if out, err := weft("upgrade", "--set", "image.tag=dev"); err != nil || !strings.Contains(out, "weft is installed (revision 2)") {
		t.Fatalf("%s%v", out, err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	t.Logf("from weft cluster upgrade to ready nodes: %.1f s", time.Since(began).Seconds())
	if out, err := weft("status"); err != nil {
		t.Errorf("status: %s%v", out, err)
	}
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	reach := func() error {
		_, err := c.dial(pods[0], "http", pods[1].Status.PodIP, 8080)
		return err
	}
	eventually(t, 30*time.Second, reach)
	before := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft", "-o", "name")
	done := make(chan error, 1)
	go func() {
		_, err := weft("upgrade", "--set", "config.logLevel=debug")
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
			if err := reach(); err != nil {
				t.Fatalf("while agents are replaced: %v", err)
			}
		}
	}
	after := c.kubectl(t, "-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=weft", "-o", "name")
	for name := range strings.FieldsSeq(before) {
		if strings.Contains(after, name) {
			t.Errorf("%s was not replaced", name)
		}
	}
	if out, err := weft("uninstall"); err == nil || !strings.Contains(err.Error(), "pods that run have a network of their own") {
		t.Errorf("a removal without a question: %s%v", out, err)
	}
	if out, err := weft("uninstall", "--yes"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	left := c.kubectl(t, "get", "daemonset,deployment,configmap,serviceaccount,role,rolebinding,lease,secret", "-n", "kube-system",
		"-o", "name") + c.kubectl(t, "get", "clusterrole,clusterrolebinding,validatingadmissionpolicy", "-o", "name")
	for name := range strings.FieldsSeq(left) {
		if strings.Contains(name, "weft") && name != "lease.coordination.k8s.io/weft-controller" {
			t.Errorf("the removal left %s", name)
		}
	}
	if err := reach(); err != nil {
		t.Errorf("pods without weft: %v", err)
	}
}
