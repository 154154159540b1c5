// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"net/netip"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/nettest"
)

// pooled yields a pool with a block of each of so many nodes.
func pooled(nodes int, yield func(string, any) bool) {
	meta := func(name string) fields {
		return fields{"name": name, "uid": "uid-" + name, "creationTimestamp": made, "generation": 1}
	}
	if !yield("weft.dev/addresspools/pods", fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": meta("pods"),
		"spec": fields{
			"regions": []fields{{"cidr": "10.128.0.0/10", "blockSize": 26}}, "assignmentMode": "Automatic",
		},
	}) {
		return
	}
	for i := range nodes {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 | byte(i>>10), byte(i >> 2), byte(i << 6)}), 26)
		name := store.BlockName("pods", cidr)
		if !yield("weft.dev/addressblocks/"+name, fields{
			"apiVersion": "weft.dev/v1alpha1", "kind": "AddressBlock", "metadata": meta(name),
			"spec": fields{"pool": "pods", "cidr": cidr.String(), "node": agentName(i)},
		}) {
			return
		}
	}
}

// controllerResident runs weft-controller for a while, prints its resident memory, and ends it.
func controllerResident(t *testing.T, c *apitest.Server, span time.Duration) {
	t.Helper()
	cmd := exec.Command(filepath.Join(nettest.Programs(t), "weft-controller"), "--kubeconfig", c.Kubeconfig(c.URL, ""),
		"--node", "controller", "--log-level", "warn")
	ready, log := make(line, 4), make(line, 64)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = ready, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	end := func() { _ = cmd.Process.Kill(); <-done }
	t.Cleanup(end)
	select {
	case <-ready:
	case <-done:
		t.Fatalf("weft-controller has ended: %s", <-log)
	case <-time.After(patience):
		t.Fatal("weft-controller is not ready")
	}
	least, most := resident(t, cmd.Process.Pid), 0
	for begin := time.Now(); time.Since(begin) < span; time.Sleep(span / 20) {
		now := resident(t, cmd.Process.Pid)
		least, most = min(least, now), max(most, now)
	}
	end()
	for len(log) > 0 {
		t.Logf("weft-controller: %s", <-log)
	}
	t.Logf("weft-controller: %.0f to %.0f MiB resident in %s", mib(least), mib(most), span)
}
