// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

// Where no program may be loaded that reports the kernel's drops, as for an ordinary user, a trace has the counters of lost
// packets that rose.
func TestTraceCounters(t *testing.T) {
	if out, err := exec.Command("unshare", "-Urnm", "true").CombinedOutput(); err != nil {
		nettest.Skip(t, "no user namespaces: "+string(out))
	}
	dir, from := labDir(t), podsOnTwoNodes(t)
	script := filepath.Join(t.TempDir(), "script")
	text := `set -e
lab() { verb=$1; shift; "$WEFT" lab $verb --dir "$DIR" "$@"; }
lab up --nodes 2 --encapsulation vxlan --from "$FROM" >&2
trap "lab down >&2" EXIT
lab exec node2 -- sysctl -qw net.ipv4.conf.all.rp_filter=1
lab exec node2 -- ip rule add to 10.42.1.0/24 lookup 100 pref 100
lab exec node2 -- ip route add 10.42.1.0/24 dev eth1 table 100
"$WEFT" trace --dir "$DIR" -o json a 10.42.2.2 || true
`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-Urnm", "sh", script)
	cmd.Env = append(os.Environ(), "WEFT="+filepath.Join(nettest.Programs(t), "weft"), "DIR="+dir, "FROM="+from)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	r := decode[packettrace.Report](t, string(out))
	filtered := slices.ContainsFunc(r.Counters, func(c packettrace.Counter) bool {
		return c.Node == "node2" && c.Name == "TcpExtIPReversePathFilter"
	})
	if r.Where != "node2" || r.Unwatched == "" || !filtered {
		t.Errorf("%s at %s, %q: %+v", r.State, r.Where, r.Unwatched, r.Counters)
	}
}

// traced returns a trace over IPv4, and the exit code.
func traced(t *testing.T, dir string, args ...string) (packettrace.Report, int) {
	t.Helper()
	r := weft(t, append([]string{"trace", "--dir", dir, "-o", "json"}, args...)...)
	if r.stdout == "" {
		t.Fatalf("trace %q: exit code %d: %s", args, r.code, r.stderr)
	}
	return decode[packettrace.Report](t, r.stdout), r.code
}

// tracedLive is traced for a live trace. It tries again while a busy host has not read all steps.
func tracedLive(t *testing.T, dir, from, to string) (r packettrace.Report, code int) {
	t.Helper()
	for range 10 {
		if r, code = traced(t, dir, "--live", from, to); r.State != packettrace.Unknown {
			break
		}
	}
	return r, code
}

// A packet that is sent is followed through the pods, the nodes and the tunnel; what drops it is named, and nothing is
// left of a trace.
func TestTrace(t *testing.T) {
	dir, a, b := explainLab(t)
	clean := func() {
		t.Helper()
		for _, place := range []string{"node1", "node2", "default/a", "default/b"} {
			if out := inNode(t, dir, place, "nft", "list", "tables"); strings.Contains(out, "weft-trace") {
				t.Errorf("left at %s: %s", place, out)
			}
		}
	}
	for name, args := range map[string][]string{
		"TCP": {a, b + ":8080"}, "ping": {a, b}, "IPv6": {"-6", "a", "b:8080"},
		"from a node": {"node1", b}, "to a node": {a, "node2"}, "to itself": {a, a}, "to itself, IPv6": {"-6", "a", "a"}, "whole MTU": {"--size", "1430", a, b},
	} {
		t.Run(name, func(t *testing.T) {
			r, code := traced(t, dir, args...)
			if code != 0 || r.State != packettrace.Arrived || len(r.Steps) == 0 {
				t.Errorf("exit code %d: %+v", code, r)
			}
			clean()
		})
	}
	for name, c := range map[string]struct {
		inject, undo  string
		args          []string
		state         packettrace.State
		where, object string
	}{
		"forward policy": {
			"add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }", "delete table inet fw",
			[]string{a, b + ":8080"},
			packettrace.Lost, "node2", "policy of chain inet fw f is drop",
		},
		"tunnel's port": {
			"add table inet fw; add chain inet fw i { type filter hook input priority 0; }; add rule inet fw i udp dport 8472 drop",
			"delete table inet fw",
			[]string{a, b + ":8080"},
			packettrace.Lost, "node2", "udp dport 8472 drop",
		},
		"answer": {
			"add table inet fw; add chain inet fw f { type filter hook forward priority 10; }; add rule inet fw f tcp sport 8080 drop",
			"delete table inet fw",
			[]string{a, b + ":8080"},
			packettrace.Unanswered, "node2", "tcp sport 8080 drop",
		},
		"no process listens":                 {"", "", []string{a, b + ":9999"}, packettrace.Refused, "default/b on node2", "port 9999/tcp"},
		"nor in the pod itself":              {"", "", []string{a, a + ":9999"}, packettrace.Refused, "default/a on node1", "port 9999/tcp"},
		"an address that no pod has":         {"", "", []string{a, "10.42.2.77"}, packettrace.Lost, "node2", "node2"},
		"an address of the node's own range": {"", "", []string{a, "10.42.1.77"}, packettrace.Lost, "node1", "node1"},
		"too large":                          {"", "", []string{"--size", "1500", a, b}, packettrace.NotSent, "default/a on node1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.inject != "" {
				inNode(t, dir, "node2", "nft", c.inject)
				defer inNode(t, dir, "node2", "nft", c.undo)
			}
			r, code := traced(t, dir, c.args...)
			if code != 1 || r.State != c.state || r.Where != c.where || !strings.Contains(r.Object, c.object) {
				t.Errorf("exit code %d, %s at %q: %q, %q", code, r.State, r.Where, r.Object, r.Cause)
			}
			clean()
		})
	}
	t.Run("UDP", func(t *testing.T) { // without an answer; that no process listens is known where the kernel reports drops
		r, code := traced(t, dir, a, b+":53/udp")
		refused := code == 1 && r.State == packettrace.Refused && r.Object == "port 53/udp"
		if arrived := code == 0 && r.State == packettrace.Arrived; !refused && !arrived {
			t.Errorf("exit code %d: %+v", code, r)
		}
		clean()
	})
	t.Run("route without a rule", func(t *testing.T) {
		inNode(t, dir, "node2", "ip", "rule", "add", "to", b, "lookup", "100")
		inNode(t, dir, "node2", "ip", "route", "add", "blackhole", b, "table", "100")
		defer func() {
			inNode(t, dir, "node2", "ip", "route", "flush", "table", "100")
			inNode(t, dir, "node2", "ip", "rule", "del", "to", b, "lookup", "100")
		}()
		r, code := traced(t, dir, a, b+":8080")
		reported := r.Drop != nil && r.Drop.Node == "node2" &&
			strings.Contains(r.Cause, "was dropped by the kernel: "+r.Drop.Reason)
		if code != 1 || r.Where != "node2" || len(r.Faults) == 0 ||
			!reported && (r.Unwatched == "" || !strings.Contains(r.Cause, "did not send it on")) {
			t.Errorf("exit code %d: %s at %q: %q, %+v", code, r.State, r.Where, r.Cause, r.Drop)
		}
	})
	t.Run("size that passes", func(t *testing.T) {
		inNode(
			t,
			dir,
			"node2",
			"nft",
			"add table netdev wire; add chain netdev wire i { type filter hook ingress device eth0 priority 0; }; "+
				"add rule netdev wire i meta length > 1300 drop",
		)
		defer inNode(t, dir, "node2", "nft", "delete table netdev wire")
		r, code := traced(t, dir, "--size", "1430", a, b)
		if code != 1 || r.State != packettrace.Lost || r.Passes != 1250 { // the tunnel's headers are 50 bytes
			t.Errorf("exit code %d: %s at %q, %d bytes pass", code, r.State, r.Where, r.Passes)
		}
		clean()
	})
	t.Run("no size passes", func(t *testing.T) {
		inNode(
			t,
			dir,
			"node2",
			"nft",
			"add table netdev wire; add chain netdev wire i { type filter hook ingress device eth0 priority 0; }; "+
				"add rule netdev wire i udp dport 8472 drop",
		)
		defer inNode(t, dir, "node2", "nft", "delete table netdev wire")
		if r, code := traced(t, dir, "--size", "1430", a, b); code != 1 || r.State != packettrace.Lost || r.Passes != 0 {
			t.Errorf("exit code %d: %s at %q, %d bytes pass", code, r.State, r.Where, r.Passes)
		}
	})
	t.Run("repeat", func(t *testing.T) {
		series := func() (packettrace.Series, int) {
			r := weft(t, "trace", "--dir", dir, "-o", "json", "--repeat", "3", a, b+":8080")
			return decode[packettrace.Series](t, r.stdout), r.code
		}
		if s, code := series(); code != 0 || s.Sent != 3 || s.Arrived != 3 {
			t.Errorf("exit code %d: %+v", code, s)
		}
		inNode(t, dir, "node2", "nft",
			"add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }")
		defer inNode(t, dir, "node2", "nft", "delete table inet fw")
		if s, code := series(); code != 1 || s.Arrived != 0 || len(s.Losses) != 1 || s.Losses[0].Count != 3 {
			t.Errorf("exit code %d: %+v", code, s)
		}
		if r := weft(t, "trace", "--dir", dir, "--repeat", "1000", a, b); r.code != 2 ||
			!strings.Contains(r.stderr, "--repeat") {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
	})
	t.Run("live", func(t *testing.T) {
		if r := weft(t, "trace", "--dir", dir, "--live", "--wait", "1s", a, b); r.code != 1 ||
			!strings.Contains(r.stderr, "no packet from "+a) {
			t.Errorf("without packets: exit code %d: %s", r.code, r.stderr)
		}
		clean()
		for name, c := range map[string]struct {
			send []string // many packets: only one is shown
			to   string
		}{
			"ping": {[]string{"ping", "-q", "-i", "0.01", "-c", "3000", b}, b},
			"TCP":  {[]string{"sh", "-c", "for i in $(seq 1000); do " + filepath.Join(nettest.Programs(t), "weft") + ` connectivity-test probe '[{"kind":"connect","to":"` + b + `:8080","millis":500}]'; done`}, b + ":8080"},
		} {
			sender := command(t, append([]string{"lab", "exec", "--dir", dir, "default/a", "--"}, c.send...)...)
			if err := sender.Start(); err != nil {
				t.Fatal(err)
			}
			r, code := tracedLive(t, dir, a, c.to)
			inNode(t, dir, "node2", "nft",
				"add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }")
			lost, lostCode := tracedLive(t, dir, a, c.to)
			inNode(t, dir, "node2", "nft", "delete table inet fw")
			_ = sender.Process.Kill()
			_ = sender.Wait()
			if code != 0 || r.State != packettrace.Arrived || len(r.Steps) > 200 {
				t.Errorf("%s: exit code %d, %d steps: %s at %q: %q: %+v", name, code, len(r.Steps), r.State, r.Where, r.Cause, r.Steps)
			}
			if lostCode != 1 || lost.Where != "node2" || !strings.Contains(lost.Object, "inet fw f") {
				t.Errorf("%s: dropped: exit code %d: %s at %q: %q %q", name, lostCode, lost.State, lost.Where,
					lost.Cause, lost.Object)
			}
			clean()
		}
		// Of many packets, one is followed: where every other one is lost, some traces find that.
		inNode(
			t,
			dir,
			"node2",
			"nft",
			"add table netdev wire; add chain netdev wire i { type filter hook ingress device eth0 priority 0; }; "+
				"add rule netdev wire i udp dport 8472 numgen random mod 2 0 drop",
		)
		sender := command(t, "lab", "exec", "--dir", dir, "default/a", "--", "ping", "-q", "-i", "0.01", "-c", "6000", b)
		if err := sender.Start(); err != nil {
			t.Fatal(err)
		}
		arrived, lost := 0, 0
		for range 20 {
			switch r, _ := traced(t, dir, "--live", a, b); r.State {
			case packettrace.Arrived, packettrace.Unanswered:
				arrived++
			case packettrace.Lost:
				lost++
			}
			if arrived > 0 && lost > 0 {
				break
			}
		}
		_ = sender.Process.Kill()
		_ = sender.Wait()
		inNode(t, dir, "node2", "nft", "delete table netdev wire")
		if arrived == 0 || lost == 0 {
			t.Errorf("every other packet is lost: %d arrived, %d were lost", arrived, lost)
		}
		for _, wrong := range [][]string{
			{"--live", "--size", "100"}, {"--live", "--repeat", "2"}, {"--wait", "5s"}, {"--live", "--wait", "1h"},
		} {
			if r := weft(t, append(append([]string{"trace", "--dir", dir}, wrong...), a, b)...); r.code != 2 {
				t.Errorf("%q: exit code %d: %s", wrong, r.code, r.stderr)
			}
		}
	})
	t.Run("pod in its node's network", func(t *testing.T) {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: host}\nspec: {nodeName: node2, hostNetwork: true, " +
			"containers: [{name: main, command: [sleep, infinity]}]}\n"
		if err := os.WriteFile(filepath.Join(dir, "store", "host.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, c := range [][]string{{"explain", "a", "host"}, {"trace", "a", "host"}, {"trace", "host", "a"}} {
			r := weft(t, append([]string{c[0], "--dir", dir, "-o", "json"}, c[1:]...)...)
			if r.code != 0 || !strings.Contains(r.stdout, `"name": "node2"`) {
				t.Errorf("%q: exit code %d: %s%s", c, r.code, r.stdout, r.stderr)
			}
		}
	})
	t.Run("two at once", func(t *testing.T) {
		running := "another trace is running on this node, from " + a + " to " + b
		within(t, time.Minute, "the second trace is refused", func() bool {
			answers := make(chan result, 2)
			for range 2 {
				go func() { answers <- weft(t, "trace", "--dir", dir, a, b+":8080") }()
			}
			arrived, refused := 0, 0
			for range 2 {
				switch r := <-answers; {
				case r.code == 0:
					arrived++
				case strings.Contains(r.stderr, running):
					refused++
				default:
					t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
				}
			}
			return arrived == 1 && refused == 1
		})
		clean()
	})
	t.Run("killed agent", func(t *testing.T) {
		killed := command(t, "trace", "--dir", dir, a, b+":8080")
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "a trace is running", func() bool {
			return strings.Contains(inNode(t, dir, "node2", "nft", "list", "tables"), "weft-trace") || killed.ProcessState != nil
		})
		killAgent(t, dir, "node2")
		_ = killed.Wait() // an agent did not answer
		within(t, time.Minute, "nothing is left of the killed agent's trace", func() bool {
			return !strings.Contains(inNode(t, dir, "node2", "nft", "list", "tables"), "weft-trace")
		})
	})
}
