// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/node/adminapi"
)

// answers is an agent that answers requests with texts; what it does not know it refuses.
func answers(t *testing.T, socket string, texts map[string]string) {
	t.Helper()
	routes := adminapi.Routes{}
	for route, text := range texts {
		routes[route] = func(*http.Request) (any, error) { return json.RawMessage(text), nil }
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	path := adminapi.Path(socket)
	go func() { done <- routes.Serve(ctx, path, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// TestAttachments: what the agent's CHECK of all attachments finds is a finding each, and what it did not look at is
// said.
func TestAttachments(t *testing.T) {
	for name, c := range map[string]struct{ report, want string }{
		"whole": {`{"attachments":2}`, ""},
		"none":  {`{}`, "ok there are none"},
		"differs": {
			`{"attachments":2,"problems":[{"attachment":"net/c1/eth0","pod":"default/web","says":"missing route"}]}`,
			"bad default/web (net/c1/eth0): missing route",
		},
		"gone": {
			`{"attachments":2,"problems":[{"attachment":"net/c1/eth0","gone":true}]}`,
			"warn net/c1/eth0: its network namespace has gone",
		},
		"unchecked": {
			`{"attachments":3,"unchecked":1}`,
			"skip 1 of 3 attachments were not checked: they are being attached or detached, or time was up",
		},
		"older": {"", "skip not checked: no agent answers at SOCKET"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			texts := map[string]string{}
			if c.report != "" {
				texts["POST "+adminapi.RouteCheck] = c.report
			}
			answers(t, w.node.Config.Socket, texts)
			var got []string
			for _, f := range attachmentsWhole(t.Context(), w.node) {
				got = append(got, string(f.Level)+" "+f.Says)
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "SOCKET", w.node.Config.Socket),
				strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMachines: what the agent finds of its virtual machines is a finding each.
func TestMachines(t *testing.T) {
	for name, c := range map[string]struct{ report, want string }{
		"whole": {`{"machines":1}`, ""},
		"none":  {`{"machines":0}`, "ok there are none"},
		"half made": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","unfinished":true,"says":"network \"default\" is started"}]}`,
			`bad machine shop/vm1: network "default" is started`,
		},
		"without a pod": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","gone":true,"says":"its pod has gone"}]}`,
			"warn machine shop/vm1: its pod has gone",
		},
		"changed": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","says":"the pod has no link tap0"}]}`,
			"bad machine shop/vm1: the pod has no link tap0",
		},
		"unreadable": {`{"machines":0,"unreadable":"record x"}`, "warn record x"},
		"older":      {"", "skip not checked: no agent answers at SOCKET"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			texts := map[string]string{}
			if c.report != "" {
				texts["POST "+adminapi.RouteCheckMachines] = c.report
			}
			answers(t, w.node.Config.Socket, texts)
			var got []string
			for _, f := range machinesWhole(t.Context(), w.node) {
				got = append(got, string(f.Level)+" "+f.Says)
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "SOCKET", w.node.Config.Socket),
				strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSkip: what was not looked at is no good finding.
func TestSkip(t *testing.T) {
	w := newWorld(t)
	levels := map[string]Level{}
	for _, f := range Examine(t.Context(), w.node) {
		levels[f.Check] = f.Level
	}
	for _, name := range []string{"attachments", "machines", "runtime", "mesh"} {
		if levels[name] != Skip {
			t.Errorf("%s is %s", name, levels[name])
		}
	}
}

// TestAsk: the node is looked at as its agent runs, and without one by the file.
func TestAsk(t *testing.T) {
	w := newWorld(t)
	file := config.Default()
	file.Socket, file.StateDir = w.node.Config.Socket, "/file"
	if n := Ask(t.Context(), file, "x.yaml"); n.Config.StateDir != "/file" ||
		n.Source != "no agent answers: looked at by x.yaml" {
		t.Errorf("%q, %+v", n.Source, n.Config)
	}
	answers(t, file.Socket, map[string]string{
		"GET " + adminapi.RouteSettings: `{"stateDir":"/flag","install":{"hostRoot":"/host"}}`,
	})
	if n := Ask(t.Context(), file, "x.yaml"); n.Config.StateDir != "/flag" || n.NodeRoot != "/host" ||
		n.Source != "as the agent at "+file.Socket+" runs, which was found by x.yaml" {
		t.Errorf("%q, %+v", n.Source, n.Config)
	}
}
