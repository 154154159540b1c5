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

// serveAgent serves an agent's admin API with fixed responses by route. Other routes fail.
func serveAgent(t *testing.T, socket string, texts map[string]string) {
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

// TestAttachments checks that each problem of the agent's CHECK of all attachments is a finding, and that attachments
// that were not checked are reported.
func TestAttachments(t *testing.T) {
	for name, c := range map[string]struct{ report, want string }{
		"whole": {`{"attachments":2}`, ""},
		"none":  {`{}`, "ok no attachments"},
		"differs": {
			`{"attachments":2,"problems":[{"attachment":"net/c1/eth0","pod":"default/web","says":"missing route"}]}`,
			"bad default/web (net/c1/eth0): missing route",
		},
		"gone": {
			`{"attachments":2,"problems":[{"attachment":"net/c1/eth0","gone":true}]}`,
			"warn net/c1/eth0: its network namespace is gone",
		},
		"unchecked": {
			`{"attachments":3,"unchecked":1}`,
			"skip 1 of 3 attachments were not checked: ADD or DEL is in progress, or the time was up",
		},
		"older": {"", "skip not checked: no agent answers at SOCKET"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			texts := map[string]string{}
			if c.report != "" {
				texts["POST "+adminapi.RouteCheck] = c.report
			}
			serveAgent(t, w.node.Config.Socket, texts)
			var got []string
			for _, f := range attachmentsIntact(t.Context(), w.node) {
				got = append(got, string(f.Level)+" "+f.Message)
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "SOCKET", w.node.Config.Socket),
				strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVMs checks that each problem that the agent reports about its VMs is a finding.
func TestVMs(t *testing.T) {
	for name, c := range map[string]struct{ report, want string }{
		"whole": {`{"machines":1}`, ""},
		"none":  {`{"machines":0}`, "ok no VMs"},
		"half made": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","unfinished":true,"says":"network \"default\" is started"}]}`,
			`bad VM shop/vm1: network "default" is started`,
		},
		"without a pod": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","gone":true,"says":"its pod has gone"}]}`,
			"warn VM shop/vm1: its pod has gone",
		},
		"changed": {
			`{"machines":1,"problems":[{"machine":"shop/vm1","says":"the pod has no link tap0"}]}`,
			"bad VM shop/vm1: the pod has no link tap0",
		},
		"unreadable": {`{"machines":0,"unreadable":"record x"}`, "warn record x"},
		"older":      {"", "skip not checked: no agent answers at SOCKET"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			texts := map[string]string{}
			if c.report != "" {
				texts["POST "+adminapi.RouteCheckVMs] = c.report
			}
			serveAgent(t, w.node.Config.Socket, texts)
			var got []string
			for _, f := range vmsIntact(t.Context(), w.node) {
				got = append(got, string(f.Level)+" "+f.Message)
			}
			if diff := cmp.Diff(strings.ReplaceAll(c.want, "SOCKET", w.node.Config.Socket),
				strings.Join(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSkip checks that a check that was not made is skipped, not ok.
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

// TestSkipConntrack checks that a conntrack table that cannot be read is not reported as not full.
func TestSkipConntrack(t *testing.T) {
	w := newWorld(t)
	w.remove("root/proc/sys/net/netfilter/nf_conntrack_count")
	for _, f := range Examine(t.Context(), w.node) {
		if f.Check == "kernel" && (f.Level != Skip || !strings.Contains(f.Message, "conntrack's size is not checked")) {
			t.Errorf("%+v", f)
		}
	}
}

// TestHangingAgent checks that the checks of the agent are skipped at once when it accepts connections and does not answer.
func TestHangingAgent(t *testing.T) {
	w := newWorld(t)
	w.node.Config.Socket = w.dir + "/hangs.sock"
	l, err := net.Listen("unix", adminapi.Path(w.node.Config.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	n := FromAgent(t.Context(), w.node.Config, "a file")
	if !n.AgentHangs || n.AgentAnswers {
		t.Fatalf("hangs %t, answers %t", n.AgentHangs, n.AgentAnswers)
	}
	for _, check := range []func(context.Context, Node) []Finding{attachmentsIntact, vmsIntact} {
		if out := check(t.Context(), n); len(out) != 1 || out[0].Level != Skip ||
			!strings.Contains(out[0].Message, "the agent does not answer") {
			t.Errorf("%+v", out)
		}
	}
}

// TestWithoutAgent checks that the state files of an agent that has ended are not evidence for ok.
func TestWithoutAgent(t *testing.T) {
	for name, c := range map[string]struct {
		answers, state bool
		want           string
	}{
		"running, with state":    {true, true, "mesh ok, name ok, controller ok, policies ok"},
		"running, without state": {true, false, "mesh skip, name skip, controller skip, policies skip"},
		"ended, with state":      {false, true, "mesh skip, name skip, controller skip, policies skip"},
		"never ran":              {false, false, "mesh skip, name skip, controller skip, policies skip"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if w.node.AgentAnswers = c.answers; c.state {
				w.writeState()
			}
			var got []string
			for _, f := range Examine(t.Context(), w.node) {
				if strings.Contains(c.want, f.Check+" ") {
					got = append(got, f.Check+" "+string(f.Level))
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFromAgent checks that the settings are the running agent's, and without an agent the file's.
func TestFromAgent(t *testing.T) {
	w := newWorld(t)
	file := config.Default()
	file.Socket, file.StateDir = w.node.Config.Socket, "/file"
	if n := FromAgent(t.Context(), file, "x.yaml"); n.Config.StateDir != "/file" ||
		n.Source != "from x.yaml: no agent answers" {
		t.Errorf("%q, %+v", n.Source, n.Config)
	}
	serveAgent(t, file.Socket, map[string]string{
		"GET " + adminapi.RouteSettings: `{"stateDir":"/flag","install":{"hostRoot":"/host"}}`,
	})
	if n := FromAgent(t.Context(), file, "x.yaml"); n.Config.StateDir != "/flag" || n.NodeRoot != "/host" ||
		n.Source != "from the agent at "+file.Socket+" (socket from x.yaml)" {
		t.Errorf("%q, %+v", n.Source, n.Config)
	}
}
