// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/weft-net/weft/internal/nettest"
)

// configured writes an agent's configuration file.
func (w *world) configured(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path("weft.yaml"), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// TestPatientWithoutPrefix: a node whose prefix is assigned late is no error; STATUS reports what is missing, and pods
// are attached when it is assigned.
func TestPatientWithoutPrefix(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 1)
	w := k.nodes[0]
	k.Do("POST", "/api/v1/nodes", fields{"metadata": fields{"name": "late"}})
	w.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, name: pods}\n", w.path("net.d")))
	w.args = append(w.args, "--node", "late", "--config", w.path("weft.yaml"), "--log-level", "info")
	w.start()
	k.until("the log message", func() bool { return strings.Contains(w.log(), `msg="agent is waiting for the node's prefix"`) })
	status := func() string {
		err := w.cni.GetStatusNetworkList(
			w.ctx(),
			w.list(
				"1.1.0",
				`{"name":"pods","cniVersion":"1.1.0","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.9.0.0/24"}}]}`,
			),
		)
		var e *types.Error
		if errors.As(err, &e) {
			return fmt.Sprint(e.Code, " ", e.Msg, " ", e.Details)
		}
		return fmt.Sprint(err)
	}
	const want = `50 node "late" has no podCIDR`
	if got := status(); !strings.HasPrefix(got, want) || !strings.Contains(got, "--allocate-node-cidrs") {
		t.Errorf("STATUS says %q, want %q and the way out", got, want)
	}
	k.Do("PATCH", "/api/v1/nodes/late", fields{
		"spec": fields{"podCIDR": "10.9.0.0/24", "podCIDRs": []string{"10.9.0.0/24"}},
	})
	k.until("the network's configuration", func() bool {
		b, _ := os.ReadFile(w.path("net.d", "00-weft.conflist"))
		return strings.Contains(string(b), "10.9.0.0/24")
	})
	if got := status(); got != "<nil>" {
		t.Errorf("STATUS with a prefix says %q", got)
	}
	for line := range strings.Lines(w.log()) { // on a busy host the first lists take longer than the agent waits for them
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "objects are not known yet") {
			t.Errorf("a start is no error: %s", line)
		}
	}
}

// TestModeChanges: a node that changes from weft's own network to another vendor's loses weft's routes, and nothing
// else.
func TestModeChanges(t *testing.T) {
	nettest.EndToEnd(t)
	k := newKubeWorld(t, 2)
	w := k.nodes[0]
	mode := func(mode, more string) {
		w.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: %s%s}\n", w.path("net.d"), mode, more))
	}
	w.args = append(w.args, "--config", w.path("weft.yaml"))
	mode("cluster", ", masquerade: true, clusterCIDRs: [10.100.0.0/16]")
	w.start()
	k.routed(1, "10.100.2.0/24 via 192.168.77.12")
	k.until("masquerade", func() bool { return strings.Contains(nettest.Run(t, w.node, "nft", "list", "tables"), "weft") })
	nettest.Run(t, w.node, "ip", "route", "add", "10.44.0.0/16", "via", "192.168.77.1")
	// of weft's number, and none of the mesh
	nettest.Run(t, w.node, "ip", "route", "add", "10.45.0.0/16", "via", "192.168.77.1", "proto", "119", "metric", "7")
	w.stop()
	mode("multus", "")
	w.start()
	k.until("no routes of weft's", func() bool {
		return !strings.Contains(nettest.Run(t, w.node, "ip", "route"), "10.100.2.0/24") &&
			!strings.Contains(nettest.Run(t, w.node, "nft", "list", "tables"), "weft")
	})
	routes := nettest.Run(t, w.node, "ip", "route")
	for _, theirs := range []string{"10.44.0.0/16", "10.45.0.0/16", "192.168.77.0/24"} {
		if !strings.Contains(routes, theirs) {
			t.Errorf("%s is gone: %s", theirs, routes)
		}
	}
	k.until("no mesh for weft mesh", func() bool {
		_, err := os.Stat(w.path("state", "mesh.json"))
		return errors.Is(err, os.ErrNotExist)
	})
}
