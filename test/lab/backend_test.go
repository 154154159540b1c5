// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// TestCustomBackend: the example of a backend in a separate module builds, and its agent runs a cluster: traffic to
// other nodes goes through the configured router node. weft's agent rejects the backend.
func TestCustomBackend(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		nettest.SkipMissing(t, "Go is missing to build the example")
	}
	program := filepath.Join(t.TempDir(), "relay-agent")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o",
		program, ".")
	build.Dir = "../../examples/backend"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	dir := labDir(t)
	up := []string{
		"lab", "up", "--nodes", "3", "--from", examples2(t), "--encapsulation", "example.org/relay", "--dir", dir,
	}

	if a := weft(t, up...); a.code != 1 || !strings.Contains(a.stderr, `backend "example.org/relay" is not known`) {
		t.Errorf("weft's own agent: exit %d\n%s", a.code, a.stderr)
	}
	up = append(up, "--agent", program)
	if a := weft(t, up...); a.code != 1 || !strings.Contains(a.stderr, "RELAY_ROUTERS") {
		t.Errorf("without a router: exit %d\n%s", a.code, a.stderr)
	}
	if a := weft(t, append(up, "--agent-env", "RELAY_ROUTERS")...); a.code != 2 ||
		!strings.Contains(a.stderr, `--agent-env "RELAY_ROUTERS" is not NAME=VALUE`) {
		t.Errorf("a variable without a value: exit %d\n%s", a.code, a.stderr)
	}
	must(t, append(up, "--agent-env", "RELAY_ROUTERS=172.18.0.1,fd18::1")...)
	st := status(t, dir)
	allReach(t, dir, 5*4*6)
	for _, n := range st.Nodes {
		for _, cidr := range st.Nodes[2].PodCIDRs {
			want := map[string]string{"node1": st.Nodes[2].IPs[0].String(), "node2": "172.18.0.1"}[n.Name]
			family := "-4"
			if cidr.Addr().Is6() {
				want, family = map[string]string{"node1": st.Nodes[2].IPs[1].String(), "node2": "fd18::1"}[n.Name], "-6"
			}
			if want == "" { // its own
				continue
			}
			if r := must(t, "lab", "exec", n.Name, "--dir", dir, "--", "ip", family, "route", "show",
				cidr.String()); !strings.Contains(r.stdout, "via "+want+" ") {
				t.Errorf("%s does not route %s via %s: %s", n.Name, cidr, want, r.stdout)
			}
		}
	}
}
