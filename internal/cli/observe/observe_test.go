// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/observer"
)

// lab is a lab's directory with two nodes, whose agents send the lines; nil: the node does not answer.
func lab(t *testing.T, nodes map[string][]flow.Line) (dir string) {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	dir = t.TempDir()
	files := map[string]string{
		"lab.json": "{}",
		"store/a.yaml": "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {app: web, pod-template-hash: 5d4}, " +
			"ownerReferences: [{kind: Node, name: node1}, {kind: ReplicaSet, name: web-5d4, controller: true}]}, " +
			"spec: {nodeName: node1, containers: [{name: c}]}}",
		"store/b.yaml": "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: db, labels: {app: db}, " +
			"ownerReferences: [{kind: StatefulSet, name: db, controller: true}]}, " +
			"spec: {nodeName: node2, containers: [{name: c}]}}",
	}
	for name := range nodes {
		files["nodes/"+name+"/agent/x"] = ""
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, lines := range nodes {
		if lines != nil {
			serve(t, adminapi.InStateDir(filepath.Join(dir, "nodes", name, "agent")), lines)
		}
	}
	return dir
}

func serve(t *testing.T, socket string, lines []flow.Line) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	routes := adminapi.Routes{"GET " + observer.RoutePath: func(*http.Request) (any, error) {
		return adminapi.Stream(func(_ context.Context, out *adminapi.Lines) error {
			for _, l := range lines {
				if err := out.Send(l); err != nil {
					return err
				}
			}
			return nil
		}), nil
	}}
	l, err := adminapi.Listen(socket, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- routes.ServeOn(ctx, l, log) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// run runs weft observe.
func run(dir string, args ...string) (stdout, stderr string, err error) {
	return runAt("--dir", dir, args...)
}

// runAt runs it with a flag that names the agents.
func runAt(flag, value string, args ...string) (stdout, stderr string, err error) {
	var out, errs strings.Builder
	env := ui.Env{Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}
	cmd := observe.NewCmd(env, explain)
	cmd.SetArgs(append([]string{flag, value}, args...))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

// explain says which connection it is asked about.
func explain(_ context.Context, c agents.Cluster, r flow.Record) ([]string, error) {
	if r.From.Kind == flow.OutsideEnd {
		return nil, errors.New("outside")
	}
	return []string{fmt.Sprintf("%d agents: %s to %s", len(c.Agents), r.From.Name, r.To.Name)}, nil
}

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }

// end is an end as its own node knows it, or without a name.
func end(addr string, port uint16, id ...flow.Identity) flow.Endpoint {
	e := flow.Endpoint{Addr: netip.MustParseAddr(addr), Port: port, Identity: flow.Identity{Kind: flow.OutsideEnd}}
	if len(id) > 0 {
		e.Identity = id[0]
	}
	return e
}

// shop are the lines of two nodes with a connection from pod shop/web to pod shop/db, and a denied packet from outside.
func shop() map[string][]flow.Line {
	web := flow.Identity{Kind: flow.PodEnd, Name: "shop/web", Node: "node1"}
	db := flow.Identity{Kind: flow.PodEnd, Name: "shop/db", Node: "node2"}
	begin := func(node, addr string) flow.Line {
		return flow.Line{Begin: &flow.Begin{Node: node, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Level: "flows"}}
	}
	holder := func(addr string, id flow.Identity) flow.Line {
		return flow.Line{Holder: &flow.Holder{Time: at(0), Addr: netip.MustParseAddr(addr), Identity: &id}}
	}
	record := func(second int, node string, kind flow.Kind, verdict flow.Verdict, from, to flow.Endpoint) flow.Line {
		direction := map[string]string{"node1": flow.Egress, "node2": flow.Ingress}[node]
		return flow.Line{Flow: &flow.Record{
			Time: at(second), Node: node, Kind: kind, Protocol: "tcp", From: from, To: to, Verdict: verdict,
			Direction: direction,
		}}
	}
	return map[string][]flow.Line{
		"node1": {
			begin("node1", "172.18.0.1"), holder("10.42.1.2", web), {Known: true},
			record(1, "node1", flow.New, flow.Allowed, end("10.42.1.2", 40000, web), end("10.42.2.3", 5432)),
			record(3, "node1", flow.New, flow.Allowed, end("172.18.0.1", 9), end("172.18.0.2", 22)),
			{Lost: &flow.Lost{Time: at(4), Node: "node1", New: 17}},
		},
		"node2": {
			begin("node2", "172.18.0.2"), holder("10.42.2.3", db), {Known: true},
			record(0, "node2", flow.Denied, flow.DeniedVerdict, end("192.0.2.9", 7), end("10.42.2.3", 22, db)),
			record(2, "node2", flow.New, flow.Allowed, end("10.42.1.2", 40000), end("10.42.2.3", 5432, db)),
		},
	}
}

// flows returns the lines without times.
func flows(out string) (all []string) {
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		all = append(all, rest)
	}
	return all
}

// The flows of all nodes are printed in the order of their times, with names that only the other node knows; connections
// between nodes are left out, and losses are reported.
func TestMerge(t *testing.T) {
	dir := lab(t, shop())
	out, errs, err := run(dir)
	want := []string{
		"node2 outside 192.0.2.9:7 > shop/db 10.42.2.3:22 tcp denied",
		"node1 shop/web 10.42.1.2:40000 > shop/db 10.42.2.3:5432 tcp new allowed",
		"node2 shop/web 10.42.1.2:40000 > shop/db 10.42.2.3:5432 tcp new allowed",
	}
	if got := flows(out); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %q", err, got)
	}
	if !strings.Contains(errs, "node1 lost: 17 new connections") {
		t.Errorf("stderr %q", errs)
	}
	if out, _, err := run(dir, "-A"); err != nil || !strings.Contains(out, "node node1 172.18.0.1:9 > node node2 172.18.0.2:22") {
		t.Errorf("all: %v: %s", err, out)
	}
}

// An address that no agent knows is named by the pool of the cluster's network that has it.
func TestPools(t *testing.T) {
	nodes := shop()
	nodes["node1"] = append(nodes["node1"], flow.Line{Flow: &flow.Record{
		Time: at(4), Node: "node1", Kind: flow.New, Protocol: "tcp", From: end("10.42.1.2", 1, *nodes["node1"][1].Holder.Identity), To: end("10.42.9.9", 80),
		Verdict: flow.Allowed, Direction: flow.Egress,
	}})
	dir := lab(t, nodes)
	for name, spec := range map[string]string{
		"main": "{assignmentMode: Automatic, regions: [{cidr: 10.42.0.0/16}]}", "lan": "{regions: [{cidr: 10.42.9.0/24}]}",
	} {
		text := "{apiVersion: weft.dev/v1alpha1, kind: AddressPool, metadata: {name: " + name + "}, spec: " + spec + "}"
		if err := os.WriteFile(filepath.Join(dir, "store", name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, err := run(dir, "--to-port", "80")
	if got, want := flows(out), "node1 shop/web 10.42.1.2:1 > pool main 10.42.9.9:80 tcp new allowed"; err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%v %s: %q, want %q", err, errs, got, want)
	}
}

// Filters select, and see names that only the other node knows.
func TestFilters(t *testing.T) {
	dir := lab(t, shop())
	for _, c := range []struct {
		args string
		want int
	}{
		{"--verdict denied", 1},
		{"--from-pod shop/web", 2},
		{"--to-pod shop/db", 3},
		{"-l app=web", 2},
		{"--not --port 22", 2},
		{"--port 22,5432", 3},
		{"--from-ip 192.0.2.0/24", 1},
		{"--from-node node1 --to-node node2", 2},
		{"-6", 0},
		{"--from-workload shop/web", 2},
		{"--to-workload shop/d*", 3},
		{"--not --workload shop/web", 1},
		{"--first 2", 2},
		{"--first 9", 3},
		{"--since 2026-01-02T03:04:00Z --until 2026-01-02T03:04:01Z", 2},
		{"-4 --not -n shop", 0},
	} {
		out, errs, err := run(dir, strings.Fields(c.args)...)
		if got := flows(out); err != nil || len(got) != c.want {
			t.Errorf("%s: %v %s: %q", c.args, err, errs, got)
		}
	}
}

// A filter that names nothing is an error with the nearest name; a wrong value says what is expected.
func TestFilterErrors(t *testing.T) {
	dir := lab(t, shop())
	policy := "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: closed}, spec: {podSelector: {}}}"
	if err := os.WriteFile(filepath.Join(dir, "store/policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--pod shop/wep":                  "did you mean shop/web?",
		"--to-node node3":                 "did you mean node",
		"-n shap":                         "did you mean shop?",
		"--network shop/fast":             "known are cluster",
		"--verdict forwarded":             "allowed, denied or dropped",
		"--not":                           "no filter follows",
		"--workload shop/wep":             "did you mean shop/web?",
		"--policy shop/clsoed":            "did you mean shop/closed?",
		"--policy closed":                 "shop/closed",
		"--until 5m":                      "--until needs --since",
		"--since 5m --until 10m":          "--since 5m is not before --until 10m",
		"--since 5m --until noon":         `--until "noon" is neither a duration nor a time`,
		"--first -1":                      "not negative",
		"--follow -o json":                "jsonl",
		"--from-label app=web,=,x":        "for example app=web",
		"-l app=wep":                      "no pod of the cluster has app=wep (did you mean app=web?",
		"--to-label aap=db":               "no pod of the cluster has aap (did you mean app?",
		"-l tier":                         "known are app, pod-template-hash",
		"-l app=db,pod-template-hash=5d4": "none has all",
		"-l !app":                         "selects no pod",
		"--reason IP_RPFILTR":             "did you mean IP_RPFILTER? known are NETFILTER_DROP, IP_RPFILTER,",
		"--reason rpfilter2":              "did you mean RPFILTER?",
		"--reason mtu":                    "known are NETFILTER_DROP",
		"--reason NETFILTER_DROPX":        "did you mean NETFILTER_DROP?",
		"--reason uplink":                 `an interface is "at uplink"`,
	} {
		_, _, err := run(dir, strings.Fields(args)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// Filters that select something are accepted, also if nothing happens now that they select.
func TestFiltersOfKnownNames(t *testing.T) {
	dir := lab(t, shop())
	for _, args := range [][]string{
		{"-l", "app=web"}, {"-l", "app!=web"}, {"-l", "app,!tier"}, {"--not", "--label", "pod-template-hash"},
		{"--reason", "csum"}, {"--reason", "rpfilter"}, {"--reason", "IP_RPFILTER at eth0"}, {"--reason", "at eth0"},
		{"--reason", "eth0"}, {"--reason", "flannel.1"}, {"--reason", "br-lan"}, {"--reason", "at uplink"},
		{"--reason", "not allowed any more"}, {"--reason", "Policies are not known"}, {"--reason", "host endpoint"},
		{"--reason", "ingress of host endpoint up of node n1 may deny it"},
	} {
		if _, _, err := run(dir, args...); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// With --why the first flow of each connection is explained.
func TestWhy(t *testing.T) {
	dir := lab(t, shop())
	for _, format := range []string{"compact", "table"} {
		out, _, err := run(dir, "--why", "-o", format)
		if err != nil || strings.Count(out, "\n  2 agents: shop/web to shop/db\n") != 1 ||
			strings.Count(out, "\n  not explained: outside\n") != 1 {
			t.Errorf("%s: %v: %s", format, err, out)
		}
	}
	if out, _, err := run(dir, "--why", "--last", "1"); err != nil || !strings.HasSuffix(out, " allowed\n  2 agents: shop/web to shop/db\n") {
		t.Errorf("last: %v: %s", err, out)
	}
	if out, _, err := run(dir, "--why", "-o", "jsonl"); err != nil || strings.Contains(out, "agents:") {
		t.Errorf("jsonl: %v: %s", err, out)
	}
}

// A node that does not answer is reported, and the others are printed; without any it is an error.
func TestSilent(t *testing.T) {
	nodes := shop()
	nodes["node3"] = nil
	out, errs, err := run(lab(t, nodes))
	if err != nil || len(flows(out)) != 3 || !strings.Contains(errs, "node node3: no agent with weft observe answers") {
		t.Errorf("%v, %q: %s", err, errs, out)
	}
	_, errs, err = run(lab(t, map[string][]flow.Line{"node1": nil}))
	if err == nil || !strings.Contains(err.Error(), "node node1: no agent with weft observe answers") || errs != "" {
		t.Errorf("%v, %q", err, errs)
	}
	_, errs, err = run(lab(t, map[string][]flow.Line{"node1": nil}), "--duration", "300ms")
	if err == nil || !strings.Contains(err.Error(), "no agent has answered within 300ms") ||
		!strings.Contains(errs, "node node1: no agent with weft observe answers") {
		t.Errorf("%v, %q", err, errs)
	}
}

// With --follow an agent that ends its stream is asked again, which is reported, until the command is interrupted.
func TestFollow(t *testing.T) {
	nodes := shop()
	nodes["node3"] = nil
	dir := lab(t, nodes)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var errs strings.Builder
	// Each time the two nodes answer there are three flows.
	env := ui.Env{Stdout: stopWriter{9, stop}.start(), Stderr: &errs, Getenv: func(string) string { return "" }}
	cmd := observe.NewCmd(env, explain)
	cmd.SetArgs([]string{"--dir", dir, "-f", "-o", "jsonl"})
	if err := cmd.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, text := range []string{"node node1: agent has ended the stream", "node node1 answers again"} {
		if !strings.Contains(errs.String(), text) {
			t.Errorf("%q is not in %s", text, errs.String())
		}
	}
	if n := strings.Count(errs.String(), "node node3: "); n != 1 {
		t.Errorf("node3 is reported %d times: %s", n, errs.String())
	}
}

// stopWriter calls stop after a number of writes.
type stopWriter struct {
	left int
	stop func()
}

func (w stopWriter) start() *stopWriter { return &w }

func (w *stopWriter) Write(p []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.stop()
	}
	return len(p), nil
}
