// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/container"
	"github.com/weft-net/weft/internal/sandbox/engine"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// TestComputeActions writes a pod as its restart policy and its containers (i: init, s: sidecar, e: ephemeral, c:
// regular), and its observed state as sandboxes (r: ready, n: not ready; the newest first) and containers:
// NAME@SANDBOX=r (running), c (created), u (unknown), or an exit code.
func TestComputeActions(t *testing.T) {
	for _, tc := range []struct{ policy, pod, is, want string }{
		{"Always", "c1", "", "Pending create=0"},
		{"Always", "c1", "n", "Pending create=1"},
		{"Always", "c1", "r", "Pending start=c1"},
		{"Always", "c1 c2", "r c1@0=r", "Pending start=c2"},
		{"Always", "c1 c2", "r c1@0=r c2@0=r", "Running"},
		{"Always", "c1", "r c1@0=0", "Running start=c1"},
		{"Always", "c1", "r c1@0=c", "Pending start=c1 remove=c1"},
		{"Always", "c1", "r c1@0=u", "Running start=c1 remove=c1"},
		{"Always", "c1", "n c1@0=137", "Running create=1"},
		{"Always", "c1", "rn c1@1=137", "Running start=c1"},
		{"OnFailure", "c1", "r c1@0=0", "Succeeded terminal"},
		{"OnFailure", "c1", "r c1@0=1", "Running start=c1"},
		{"OnFailure", "c1 c2", "r c1@0=0 c2@0=r", "Running"},
		{"OnFailure", "c1 c2", "rn c1@1=0 c2@1=137", "Running start=c2"},
		{"OnFailure", "c1", "n c1@0=0", "Succeeded terminal"},
		{"Never", "c1", "r c1@0=0", "Succeeded terminal"},
		{"Never", "c1 c2", "r c1@0=0 c2@0=3", "Failed terminal"},
		{"Never", "c1 c2", "r c1@0=3 c2@0=r", "Running"},
		{"Never", "c1 c2", "n c1@0=0 c2@0=r", "Failed terminal"},
		{"Never", "c1", "n", "Pending create=1"},
		{"Always", "i1 i2 c1", "r", "Pending start=i1 init=i1"},
		{"Always", "i1 i2 c1", "r i1@0=r", "Pending init=i1"},
		{"Always", "i1 i2 c1", "r i1@0=1", "Pending start=i1 init=i1"},
		{"Always", "i1 i2 c1", "r i1@0=0", "Pending start=i2 init=i2"},
		{"Always", "i1 i2 c1", "r i1@0=0 i2@0=0", "Pending start=c1"},
		{"Always", "i1 c1", "rn i1@1=0 c1@1=137", "Running start=i1 init=i1"},
		{"Never", "i1 c1", "r i1@0=1", "Failed terminal"},
		{"Never", "i1 c1", "r i1@0=0", "Pending start=c1"},
		{"Always", "s1 c1", "r", "Pending start=s1 init=s1"},
		{"Always", "s1 c1", "r s1@0=r", "Pending start=c1"},
		{"Never", "s1 c1", "r s1@0=1 c1@0=r", "Running start=s1 init=s1"},
		{"Always", "e1 i1 c1", "r", "Pending start=e1,i1 init=i1"},
		{"Always", "e1 i1 c1", "r e1@0=1", "Pending start=i1 init=i1"},
		{"Always", "e1 c1", "rn e1@1=1", "Pending start=c1"},
	} {
		p, st := parseCase(t, tc.policy, tc.pod, tc.is)
		if got := summary(p, st); got != tc.want {
			t.Errorf("%s %q with %q: %s, want %s", tc.policy, tc.pod, tc.is, got, tc.want)
		}
	}
}

func summary(p *v1.Pod, st status) string {
	ph, terminal := phase(p, st)
	out := string(ph)
	if terminal {
		out += " terminal"
	}
	a := computeActions(p, st)
	if a.createSandbox {
		out += fmt.Sprintf(" create=%d", a.attempt)
	}
	var start, remove []string
	for _, c := range a.start {
		start = append(start, c.Name)
	}
	for _, c := range a.remove {
		remove = append(remove, c.Name)
	}
	for _, part := range []struct{ key, value string }{
		{"start", strings.Join(start, ",")}, {"remove", strings.Join(remove, ",")}, {"init", a.waitInit},
	} {
		if part.value != "" {
			out += " " + part.key + "=" + part.value
		}
	}
	return out
}

func parseCase(t *testing.T, policy, names, is string) (*v1.Pod, status) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  restartPolicy: " + policy + "\n"
	lists := map[byte]string{}
	for _, n := range strings.Fields(names) {
		more := ""
		kind := n[0]
		if kind == 's' {
			kind, more = 'i', ", restartPolicy: Always"
		}
		lists[kind] += fmt.Sprintf("  - {name: %s, command: [a]%s}\n", n, more)
	}
	for kind, key := range map[byte]string{'e': "ephemeralContainers", 'i': "initContainers", 'c': "containers"} {
		if lists[kind] != "" {
			text += "  " + key + ":\n" + lists[kind]
		}
	}
	pods, _, err := pod.Parse([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	var sandboxes []engine.Sandbox
	var cs []container.Status
	for i, f := range strings.Fields(is) {
		if i == 0 {
			for j, s := range f {
				b := engine.Sandbox{
					Record: engine.Record{ID: fmt.Sprint(j), Config: engine.PodConfig{Attempt: len(f) - 1 - j}}, State: engine.Ready,
				}
				if s == 'n' {
					b.State = engine.NotReady
				}
				sandboxes = append(sandboxes, b)
			}
			continue
		}
		var c container.Status
		name, rest, _ := strings.Cut(f, "@")
		c.Name, c.Created = name, time.Unix(int64(i), 0)
		c.Sandbox, rest, _ = strings.Cut(rest, "=")
		switch rest {
		case "r":
			c.State = container.Running
		case "c":
			c.State = container.Created
		case "u":
			c.State = container.Unknown
		default:
			c.State = container.Exited
			_, _ = fmt.Sscan(rest, &c.ExitCode)
		}
		cs = append(cs, c)
	}
	return pods[0], newStatus(sandboxes, cs)
}
