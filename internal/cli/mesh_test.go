// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// meshState writes the status of a mesh with one peer that is reached and one that is not.
func meshState(t *testing.T) string {
	t.Helper()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	c := &model.Cluster{Self: "a", Nodes: []model.Node{
		{Name: "a", Addrs: []netip.Addr{addr("192.168.0.1")}, PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24")}},
		{Name: "b", Addrs: []netip.Addr{addr("192.168.0.2")}, PodCIDRs: []netip.Prefix{prefix("10.244.2.0/24")}},
		{Name: "far", Addrs: []netip.Addr{addr("192.168.7.2")}, PodCIDRs: []netip.Prefix{prefix("10.244.3.0/24")}},
	}}
	topo, err := mesh.Plan(c, mesh.Config{}, state.Answers{{Space: state.Host, LinkOf: addr("192.168.0.1")}: {
		Found: true, Link: state.Link{Name: "eth0"}, Addrs: []state.Addr{{Link: "eth0", Prefix: prefix("192.168.0.1/24")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(reconcile.Status{
		Self: "a", Time: time.Unix(0, 0).UTC(), Topology: topo,
		Fragments: []reconcile.FragmentStatus{
			{Owner: "mesh/node", OK: true}, {Owner: "mesh/peer/b", Error: "no such device"},
		},
	})
	dir := t.TempDir()
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, reconcile.StatusFile), b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func runMesh(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = Run(context.Background(), Env{
		Args: append([]string{"mesh"}, args...), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" },
	})
	return code, out.String(), errs.String()
}

// TestMeshStatusSource checks that the status is the running agent's, and the file's before the agent's first pass and
// without an agent.
func TestMeshStatusSource(t *testing.T) {
	dir := meshState(t)
	var known atomic.Bool
	ctx, stop := context.WithCancel(t.Context())
	l, err := adminapi.Listen(adminapi.InStateDir(dir), slog.New(slog.DiscardHandler))
	if err != nil || l == nil {
		t.Fatal(l, err)
	}
	done := make(chan error, 1)
	go func() {
		done <- adminapi.Routes{"GET " + adminapi.RouteMesh: func(*http.Request) (any, error) {
			if !known.Load() {
				return nil, model.Errorf(model.CodeNotAvailable, "", "not yet")
			}
			return reconcile.Status{Self: "asked", Topology: mesh.Topology{Self: "asked"}}, nil
		}}.ServeOn(ctx, l, slog.New(slog.DiscardHandler))
	}()
	shows := func(when, want string) {
		t.Helper()
		if code, out, errs := runMesh("--state-dir", dir); code != 0 || !strings.HasPrefix(out, "node "+want) {
			t.Errorf("%s: exit %d, %s%s", when, code, out, errs)
		}
	}
	shows("before the first pass", "a,")
	known.Store(true)
	shows("with an agent", "asked,")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	shows("without an agent", "a,")
}

func TestMeshOutputs(t *testing.T) {
	dir := meshState(t)
	for output, wants := range map[string][]string{
		"text": {
			"node a, backend host-gw", "route 10.244.2.0/24 via 192.168.0.2 dev eth0", "peer far\n  not reached",
			"not applied: mesh/peer/b: no such device", "1970-01-01T00:00:00Z",
		},
		"wide": {"PEER  STATE", "b     bad", "far   bad", "10.244.2.0/24", "not applied: mesh/peer/b: no such device"},
		"name": {"b\nfar\n"},
		"json": {`"self": "a"`, `"owner": "mesh/peer/b"`, `"ok": false`},
		"dot":  {"graph weft {", "192.168.0.2", "not reached 10.244.3.0/24"},
		"svg":  {"<svg ", "pods 10.244.2.0/24", "</svg>"},
	} {
		code, out, errs := runMesh("--state-dir", dir, "-o", output)
		if code != 0 || errs != "" {
			t.Errorf("-o %s: exit %d, %s", output, code, errs)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("-o %s lacks %q:\n%s", output, want, out)
			}
		}
		if output == "json" && !json.Valid([]byte(out)) {
			t.Errorf("no JSON: %s", out)
		}
		if output == "svg" {
			dec := xml.NewDecoder(strings.NewReader(out))
			for {
				if _, err := dec.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestMeshRefuses(t *testing.T) {
	if code, _, errs := runMesh("--state-dir", t.TempDir()); code != 1 || !strings.Contains(errs, "hint: ") ||
		!strings.Contains(errs, "mesh.json") {
		t.Errorf("no agent: exit %d, %s", code, errs)
	}
	if code, _, errs := runMesh("-o", "png"); code != 2 || !strings.Contains(errs, "svg") {
		t.Errorf("bad output: exit %d, %s", code, errs)
	}
}
