// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/cli/observe"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/flow"
)

// labeledShop are the lines of shop with labels: of pod shop/db others than it has now, and of a pod that is gone, whose
// address node1 does not know.
func labeledShop() map[string][]flow.Line {
	nodes := shop()
	old := flow.NewLabelSet(map[string]string{"app": "db", "track": "old"})
	gone := flow.Identity{Kind: flow.PodEnd, Name: "shop/gone", Node: "node2", Labels: flow.NewLabelSet(map[string]string{"app": "gone"})}
	for _, all := range nodes {
		all[0].Begin.Labels = true
		all[1].Holder.Identity.Labels = flow.NewLabelSet(map[string]string{"app": "now"})
		for _, l := range all {
			if l.Flow == nil {
				continue
			}
			for _, e := range []*flow.Endpoint{&l.Flow.From, &l.Flow.To} {
				switch {
				case e.Node != l.Flow.Node || e.Kind != flow.PodEnd:
				case e.Name == "shop/db":
					e.Labels = old
				default:
					e.Labels = flow.NewLabelSet(map[string]string{"app": "web"})
				}
			}
		}
	}
	nodes["node2"] = append(nodes["node2"], flow.Line{Flow: &flow.Record{
		Time: at(9), Node: "node2", Kind: flow.New, Protocol: "tcp", From: end("10.42.2.7", 1, gone), To: end("192.0.2.9", 443),
		Verdict: flow.Allowed, Direction: flow.Egress,
	}})
	for node, all := range nodes { // without --follow, what is known comes last
		all = slices.DeleteFunc(all, func(l flow.Line) bool { return l.Known })
		nodes[node] = append(all, flow.Line{Known: true})
	}
	return nodes
}

// Labels are those at the time of the flow, at both ends, also of pods that are gone. JSON has them.
func TestLabelsOfTheTime(t *testing.T) {
	dir := lab(t, labeledShop())
	for args, want := range map[string]int{
		"--since 2026-01-02T03:04:00Z -l track=old":           3, // one of node1, to a pod of node2
		"--since 2026-01-02T03:04:00Z --to-label track=old":   3,
		"--since 2026-01-02T03:04:00Z --from-label app=gone":  1,
		"--since 2026-01-02T03:04:00Z --not -l app=gone":      3,
		"--since 2026-01-02T03:04:00Z --from-label track=old": 0,
		"-l track=old":  3,
		"-l app=gone":   1,
		"-l app!=now":   4,
		"-f -l app=wep": 0,
	} {
		arg := strings.Fields(args)
		if arg[0] == "-f" {
			arg = append(arg[1:], "--duration", "500ms")
		}
		out, errs, err := run(dir, arg...)
		if got := flows(out); err != nil || len(got) != want {
			t.Errorf("%s: %v %s: %q", args, err, errs, got)
		}
	}
	out, _, err := run(dir, "--to-label", "track=old", "--to-port", "5432", "-o", "jsonl")
	if n := strings.Count(out, `"labels":{"app":"db","track":"old"}`); err != nil || n != 2 || strings.Count(out, `"labels":{"app":"web"}`) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	// What no pod has, or had, is an error where that is known.
	_, _, err = run(dir, "-l", "track=odl")
	if err == nil || !strings.Contains(err.Error(), "no pod of the cluster has track=odl (did you mean track=old?") {
		t.Error(err)
	}
	_, errs, err := run(dir, "--since", "2026-01-02T03:04:00Z", "-l", "track=odl")
	if err != nil || !strings.Contains(errs, "no flow matches") || !strings.Contains(errs, "did you mean track=old?") {
		t.Errorf("%v: %s", err, errs)
	}
}

// A pod that came after the command began is selected by the labels that its agent reports.
func TestLabelsOfLaterPods(t *testing.T) {
	nodes := shop()
	late := flow.Identity{Kind: flow.PodEnd, Name: "shop/late", Node: "node1", Labels: flow.NewLabelSet(map[string]string{"app": "late"})}
	addr := netip.MustParseAddr("10.42.1.9")
	nodes["node1"] = []flow.Line{
		{Begin: &flow.Begin{Node: "node1", Labels: true}}, {Known: true},
		{Holder: &flow.Holder{Time: at(5), Addr: addr, Identity: &late}},
		{Flow: &flow.Record{Time: at(6), Node: "node1", Kind: flow.New, From: end("10.42.1.9", 1, late), To: end("192.0.2.9", 2), Verdict: flow.Allowed}},
	}
	nodes["node2"][0].Begin.Labels = true
	// node2 reports the connection's other end, and does not know the pod.
	nodes["node2"] = append(nodes["node2"], flow.Line{Flow: &flow.Record{
		Time: at(6), Node: "node2", Kind: flow.New, From: end("10.42.1.9", 1), To: end("10.42.2.3", 22, *nodes["node2"][1].Holder.Identity), Verdict: flow.Allowed,
	}})
	dir := lab(t, nodes)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var errs strings.Builder
	out := &linesUntil{left: 2, stop: stop}
	cmd := observe.NewCmd(ui.Env{Stdout: out, Stderr: &errs, Getenv: os.Getenv}, explain)
	cmd.SetArgs([]string{"--dir", dir, "-f", "--from-label", "app=late"})
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if out.left > 0 || !slices.ContainsFunc(flows(out.String()), func(l string) bool {
		return strings.HasPrefix(l, "node2 shop/late 10.42.1.9:1 > shop/db")
	}) {
		t.Errorf("%s: %s", errs.String(), out.String())
	}
}

// linesUntil calls stop after some writes.
type linesUntil struct {
	strings.Builder
	left int
	stop func()
}

func (w *linesUntil) Write(p []byte) (int, error) {
	if w.left--; w.left == 0 {
		w.stop()
	}
	return w.Builder.Write(p)
}

// An agent that does not report labels is named; the labels that its pods have now count, if they are known.
func TestAgentWithoutLabels(t *testing.T) {
	dir := lab(t, shop())
	out, errs, err := run(dir, "-l", "app=db")
	if err != nil || len(flows(out)) != 3 {
		t.Errorf("%v %s: %s", err, errs, out)
	}
	for _, node := range []string{"node1", "node2"} {
		if !strings.Contains(errs, "node "+node+": its agent does not report labels of pods: those that they have now count") {
			t.Errorf("%s: %s", node, errs)
		}
	}
	if _, errs, err := run(dir, "--pod", "shop/db", "-o", "jsonl"); err != nil || strings.Contains(errs, "labels") {
		t.Errorf("%v: %s", err, errs)
	}
	out, errs, err = runAt("--state-dir", filepath.Join(dir, "nodes", "node1", "agent"), "-l", "app=db")
	if err != nil || len(flows(out)) != 0 || !strings.Contains(errs, "no filter of labels selects them") {
		t.Errorf("%v %s: %s", err, errs, out)
	}
}
