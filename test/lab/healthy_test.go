// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

// In healthy labs of every kind the connectivity test passes, explain finds everything ok, and a traced packet arrives.
// TestIPIP has the back end that few kernels have.
func TestHealthyLabs(t *testing.T) {
	const atOnce = 4
	turns := make(chan struct{}, atOnce)
	families := map[string]string{"IPv4": "10.42.0.0/16", "IPv6": "fd42::/48", "dual-stack": "10.42.0.0/16,fd42::/48"}
	designs := [][]string{{"--addresses", "podCIDRs"}, {"--addresses", "pools"}, {"--design", "bridge"}}
	for _, backend := range []string{"host-gw", "vxlan", "udp", "wireguard"} {
		for family, cidr := range families {
			for _, design := range designs {
				flags := append([]string{"--encapsulation", backend, "--cluster-cidr", cidr}, design...)
				t.Run(strings.Join([]string{backend, family, design[1]}, " "), func(t *testing.T) {
					t.Parallel()
					turns <- struct{}{}
					defer func() { <-turns }()
					verifyHealthy(t, flags)
				})
			}
		}
	}
}

// TestIPIP: with IPIP all reach each other by its tunnel, and explain finds nothing between two pods, there and back.
func TestIPIP(t *testing.T) {
	nettest.Need(t, "ipip")
	dir := labDir(t)
	must(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir,
		"--encapsulation", "ipip", "--cluster-cidr", "10.42.0.0/16")
	waitForRoute(t, dir, "dev flannel.ipip")
	if r := settled(t, dir); r.Pairs == 0 || r.Reached != r.Pairs {
		t.Errorf("reach: %d of %d pairs: %+v", r.Reached, r.Pairs, r.Failed)
	}
	verifyExplained(t, dir, "one", "two")
	verifyExplained(t, dir, "two", "one")
}

func verifyHealthy(t *testing.T, flags []string) {
	t.Helper()
	dir := labDir(t)
	up := append([]string{"lab", "up", "--nodes", "2", "--from", examples, "--dir", dir}, flags...)
	must(t, up...)
	if r := weft(t, "connectivity-test", "--dir", dir, "--only", "pods,nodes,mtu"); r.code != 0 {
		t.Errorf("connectivity test: %s%s", r.stdout, r.stderr)
	}
	var ends []string
	for _, p := range status(t, dir).Pods {
		if !p.HostNetwork {
			ends = append(ends, p.Namespace+"/"+p.Name)
		}
	}
	for _, from := range ends {
		for _, to := range append(ends, "node1", "node2") {
			if from == to {
				continue
			}
			verifyExplained(t, dir, from, to)
		}
	}
	var r packettrace.Report
	var code int
	if !sometime(time.Minute, func() bool {
		r, code = traced(t, dir, ends[0], ends[len(ends)-1]) // waits 700 ms for the answer, which a busy host may not have then
		return code == 0 && r.State == packettrace.Arrived
	}) {
		t.Errorf("trace: exit code %d: %s at %q: %s", code, r.State, r.Where, r.Cause)
	}
}

// verifyExplained fails unless explain finds all hops between two ends ok.
func verifyExplained(t *testing.T, dir, from, to string) {
	t.Helper()
	r := weft(t, "explain", "--dir", dir, "-o", "json", from, to)
	reports := decode[[]explain.Report](t, r.stdout)
	for _, one := range reports {
		if one.State != explain.OK {
			t.Errorf("%s to %s: %s: %+v", from, to, one.State, one.Hops())
		}
	}
	if r.code != 0 || len(reports) == 0 {
		t.Errorf("%s to %s: exit code %d: %s", from, to, r.code, r.stderr)
	}
}
