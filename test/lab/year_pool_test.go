// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/connectivity"
)

const smallPool = `apiVersion: weft.dev/v1alpha1
kind: AddressPool
metadata: {name: %s}
spec:
  assignmentMode: Automatic
  regions: [{cidr: %s, blockSize: %d}]
`

// TestFullPool: pods that find no free address fail with an error that names the pool, the pool says on which nodes, and
// the running pods are not disturbed. With another pool the same pods start.
func TestFullPool(t *testing.T) {
	from, labDir := filepath.Dir(write(t, "pool.yaml", fmt.Sprintf(smallPool, "full", "10.42.0.0/28", 30))), labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--from", from, "--dir", labDir, "--addresses", "pools", "--cluster-cidr", "10.42.0.0/24")
	must(t, "lab", "apply", "--dir", labDir, "--wait", "0", "-f", write(t, "many.yaml", deployment("many", 20, "infinity")))
	var running, failed []lab.PodStatus
	within(t, 60*waitUnit, "16 addresses are given to 20 pods, and the other pods' errors name the pool", func() bool {
		st, _ := degradedStatus(t, labDir)
		running, failed = split(st)
		return len(failed) > 0 && len(running)+len(failed) == 20 &&
			!slices.ContainsFunc(failed, func(p lab.PodStatus) bool { return !strings.Contains(p.Reason, `pool "full"`) })
	})
	t.Logf("%d of 20 run; another one: %s", len(running), failed[0].Reason)
	within(t, 60*waitUnit, "the pool names a node on which it is exhausted", func() bool {
		return len(exhaustedOn(t, labDir, "full")) > 0
	})
	connected(t, labDir, len(running), failed)

	must(t, "lab", "apply", "--dir", labDir, "-f", write(t, "more.yaml", fmt.Sprintf(smallPool, "more", "10.43.0.0/26", 29)))
	for _, p := range failed {
		must(t, "lab", "restart", "--dir", labDir, p.Name)
	}
	running, failed = split(status(t, labDir))
	if len(running) != 20 {
		t.Fatalf("%d of 20 run with two pools: %+v", len(running), failed)
	}
	connected(t, labDir, 20, nil)
	if a := weft(t, "ipam", "check", "--store-dir", filepath.Join(labDir, "store")); a.code != 0 {
		t.Errorf("the audit finds:\n%s", a.stdout)
	}
}

// exhaustedOn returns the nodes that found no free address in a pool.
func exhaustedOn(t *testing.T, labDir, pool string) []string {
	t.Helper()
	s, err := dir.Open(filepath.Join(labDir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.List("")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.Key != store.AddressPools().Key("", pool) {
			continue
		}
		spec, err := o.AddressPool()
		if err != nil {
			t.Fatal(err)
		}
		return spec.ExhaustedOn
	}
	t.Fatalf("no pool %s", pool)
	return nil
}

// split returns the pods that run, and those that do not.
func split(st lab.Status) (running, failed []lab.PodStatus) {
	for _, p := range podsNamed(st, "many-") {
		if p.Ready {
			running = append(running, p)
		} else {
			failed = append(failed, p)
		}
	}
	return running, failed
}

// connected fails unless that many pods have addresses and all pairs without one of the failed pods reach each other.
func connected(t *testing.T, labDir string, pods int, failed []lab.PodStatus) {
	t.Helper()
	n, without := 0, map[string]bool{}
	for _, p := range failed {
		without[p.Namespace+"/"+p.Name] = true
	}
	for name, ips := range clusterOf(t, labDir).ips {
		if strings.HasPrefix(name, "many-") && len(ips) > 0 {
			n++
		}
	}
	if n != pods {
		t.Errorf("%d pods have addresses, want %d", n, pods)
	}
	var r connectivity.Report
	if !sometime(time.Minute, func() bool {
		r, _ = reachOf(t, labDir)
		r.Failed = slices.DeleteFunc(r.Failed, func(f connectivity.Failure) bool { return without[f.From] || without[f.To] })
		return r.Reached > 0 && len(r.Failed) == 0
	}) {
		t.Errorf("reach: %d pairs reach each other, failed: %+v", r.Reached, r.Failed)
	}
}
