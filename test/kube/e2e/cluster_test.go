// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// sharedCluster is the cluster of all tests; empty if there is none.
var sharedCluster Cluster

// Cluster is a cluster of test/kube/cluster.
type Cluster struct {
	name, cni string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("WEFT_E2E") == "" {
		return m.Run()
	}
	sharedCluster = Cluster{name: os.Getenv("WEFT_E2E_CLUSTER"), cni: os.Getenv("WEFT_E2E_CNI")}
	if sharedCluster.cni == "" {
		sharedCluster.cni = "weft"
	}
	if sharedCluster.name != "" {
		return m.Run()
	}
	sharedCluster.name = "e2e"
	up := []string{"up", "--name", "e2e", "--cni", sharedCluster.cni}
	for _, args := range [][]string{{"down", "--name", "e2e"}, up} { // down: remove what a killed run has left
		cmd := exec.Command("../cluster", args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e:", strings.Join(args, " "), err)
			return 1
		}
	}
	code := m.Run()
	if code != 0 {
		if logs, err := sharedCluster.call(context.Background(), "", "logs", "--name", "e2e"); err == nil {
			file := os.TempDir() + "/weft-e2e-logs"
			if os.WriteFile(file, []byte(logs), 0o600) == nil {
				fmt.Fprintln(os.Stderr, "e2e: the cluster's logs are in", file)
			}
		}
	}
	if out, err := sharedCluster.call(context.Background(), "", "down", "--name", "e2e"); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err, out)
		return 1
	}
	return code
}

// kube returns the cluster, or skips the test.
func kube(t *testing.T) Cluster {
	t.Helper()
	if sharedCluster.name == "" {
		nettest.SkipMissing(t, "needs a real Kubernetes: make e2e")
	}
	return sharedCluster
}

// weft returns the cluster if its network is weft, or skips the test.
func weft(t *testing.T) Cluster {
	t.Helper()
	c := kube(t)
	if c.cni != "weft" {
		nettest.SkipMissing(t, "only weft does this, and the cluster's network is "+c.cni)
	}
	return c
}

func (c Cluster) call(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "../cluster", args...)
	var out, warn bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &warn
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("cluster %s: %w: %s%s", strings.Join(args, " "), err, &warn, &out)
	}
	return out.String(), err
}

// try runs a command of the cluster's program (kubectl, exec, start, stop) with a timeout.
func (c Cluster) try(verb string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	return c.call(ctx, "", append([]string{verb, "--name", c.name}, args...)...)
}

func (c Cluster) must(t *testing.T, verb string, args ...string) string {
	t.Helper()
	out, err := c.try(verb, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c Cluster) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return c.must(t, "kubectl", args...)
}

func (c Cluster) apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if out, err := c.call(ctx, manifest, "kubectl", "--name", c.name, "-n", namespace, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v%s\n%s", err, out, manifest)
	}
}

// get decodes the output of kubectl get.
func (c Cluster) get(t *testing.T, into any, args ...string) {
	t.Helper()
	out := c.kubectl(t, append([]string{"get", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("kubectl get %s: %v", strings.Join(args, " "), err)
	}
}

// namespace creates a namespace, which is deleted with its pods at the end of the test.
func (c Cluster) namespace(t *testing.T) string {
	t.Helper()
	return c.namespaceNamed(t, strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))
}

// namespaceNamed is namespace with a name.
func (c Cluster) namespaceNamed(t *testing.T, name string) string {
	t.Helper()
	if _, err := c.try("kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "create", "namespace", name)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := c.try("kubectl", "-n", name, "get", "pods,events", "-o", "wide")
			t.Log(out)
		}
		if _, err := c.try("kubectl", "delete", "namespace", name, "--timeout=120s"); err != nil {
			t.Error(err)
		}
	})
	return name
}

// eventually retries until ask succeeds; at the limit the test fails with the last error.
func eventually(t *testing.T, limit time.Duration, ask func() error) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not after %s: %v", limit, err)
		}
	}
}
