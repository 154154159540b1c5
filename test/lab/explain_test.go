// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/packettrace"
)

// explainLab starts the lab; in pod default/b a server listens.
func explainLab(t *testing.T) (dir, a, b string) {
	t.Helper()
	dir = labDir(t)
	from := podsOnTwoNodes(t)
	must(t, "lab", "up", "--nodes", "2", "--encapsulation", "vxlan", "--from", from, "--dir", dir)
	for _, p := range status(t, dir).Pods {
		if p.Name != "b" {
			continue
		}
		ns, err := netns.Open(p.Netns)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ns.Close() })
		serveLines(t.Context(), t, ns, 8080)
	}
	return dir, addrOf(t, dir, "a").String(), addrOf(t, dir, "b").String()
}

// podsOnTwoNodes returns a directory with the manifests of pods a on node1 and b on node2.
func podsOnTwoNodes(t *testing.T) (from string) {
	t.Helper()
	from = t.TempDir()
	for name, node := range map[string]string{"a": "node1", "b": "node2"} {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {nodeName: " + node +
			", containers: [{name: main, command: [sleep, infinity], " +
			"ports: [{name: web, containerPort: 8080}, {containerPort: 80, hostPort: 7070}, {containerPort: 8080, hostPort: 7071}]}]}\n"
		if err := os.WriteFile(filepath.Join(from, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return from
}

// explained returns the explanation of a connection over IPv4, and the exit code.
func explained(t *testing.T, dir, from, to string) (explain.Report, int) {
	t.Helper()
	r := weft(t, "explain", "--dir", dir, "-o", "json", from, to)
	all := decode[[]explain.Report](t, r.stdout)
	if len(all) != 1 {
		t.Fatalf("%d explanations: %s%s", len(all), r.stdout, r.stderr)
	}
	return all[0], r.code
}

// Each failure is named with its hop, cause and object, and nothing else is; without it nothing is in the way.
func TestExplainFaults(t *testing.T) {
	dir, a, b := explainLab(t)
	healthy := func(t *testing.T) {
		t.Helper()
		var last explain.Report
		within(t, time.Minute, "explanation without a fault", func() bool {
			var code int
			last, code = explained(t, dir, a, b+":8080")
			return code == 0 && last.State == explain.OK
		})
		if t.Failed() {
			t.Logf("%+v", last.Faults())
		}
	}
	healthy(t)
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			undo := f.apply(t, dir)
			var r explain.Report
			var code int
			within(t, time.Minute, "the diagnosis", func() bool { // a fight begins, and the agent may be earlier with its repair
				if f.repaired {
					f.apply(t, dir)
				}
				r, code = explained(t, dir, a, b+":8080")
				return f.fight == "" && !f.repaired || slices.ContainsFunc(r.Faults(), f.is)
			})
			if !f.repaired {
				undo() // some are repaired by now
				undo = f.apply(t, dir)
				f.verifyTrace(t, dir, a, b+":8080")
			}
			undo()
			if code != 1 || !slices.ContainsFunc(r.Faults(), f.is) {
				t.Errorf("exit code %d, not named; got %+v", code, r.Faults())
			}
			for _, h := range r.Faults() {
				if !f.explains(h) {
					t.Errorf("also blames %s at %s: %s: %s", h.ID, h.Where, h.Cause, h.Object)
				}
			}
			healthy(t)
		})
	}
	t.Run("no process listens", func(t *testing.T) {
		r, code := explained(t, dir, a, b+":9999")
		if code != 1 || len(r.Faults()) != 1 || r.Faults()[0].ID != "listener" {
			t.Errorf("exit code %d: %+v", code, r.Faults())
		}
	})
	t.Run("port of a node", func(t *testing.T) {
		r, code := explained(t, dir, a, "node2:7070")
		if code != 1 || len(r.Faults()) != 1 || r.Faults()[0].Object != "port 80/tcp of default/b on node2" {
			t.Errorf("exit code %d: %+v", code, r.Faults())
		}
		if r, code := traced(t, dir, a, "node2:7070"); code != 1 || r.Where != "default/b on node2" {
			t.Errorf("trace: exit code %d: %s at %q", code, r.State, r.Where)
		}
		if r, code := explained(t, dir, a, "node2:7071"); code != 0 {
			t.Errorf("a process listens: exit code %d: %+v", code, r.Faults())
		}
		if r, code := traced(t, dir, a, "node2:7071"); code != 0 || r.To.Name != "default/b" {
			t.Errorf("trace: exit code %d: %s at %q", code, r.State, r.Where)
		}
	})
	t.Run("port by its name", func(t *testing.T) {
		for _, to := range []string{"b:web", b + ":web/tcp"} {
			if r, code := explained(t, dir, a, to); code != 0 || r.Port != 8080 || r.Protocol != model.TCP {
				t.Errorf("%s: exit code %d: port %d/%s", to, code, r.Port, r.Protocol)
			}
		}
		if r, code := traced(t, dir, a, "b:web"); code != 0 || r.Port != 8080 {
			t.Errorf("trace: exit code %d: port %d", code, r.Port)
		}
		for to, want := range map[string]string{
			"b:wbe":     "pod default/b has no port with the name \"wbe\"\nhint: did you mean web?",
			"b:web/udp": "it has web/tcp", "node2:web": "node2 has no port with the name",
			"no-host.invalid:80": "is neither a pod nor a node",
		} {
			if r := weft(t, "explain", "--dir", dir, "a", to); r.code != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: exit code %d: %s", to, r.code, r.stderr)
			}
		}
	})
	t.Run("policy", func(t *testing.T) {
		policy := filepath.Join(dir, "store", "deny.yaml")
		text := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny, namespace: default}\n" +
			"spec: {podSelector: {}, policyTypes: [Ingress]}\n"
		if err := os.WriteFile(policy, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "denial explained", func() bool {
			r, code := explained(t, dir, a, b+":8080")
			return code == 1 && len(r.Faults()) == 1 && r.Faults()[0].ID == "ingress" &&
				strings.Contains(r.Faults()[0].Object, "default/deny")
		})
		if err := os.Remove(policy); err != nil {
			t.Fatal(err)
		}
		healthy(t)
	})
	t.Run("an agent does not answer", func(t *testing.T) {
		killAgent(t, dir, "node2")
		r, _ := explained(t, dir, a, b)
		if r.State == explain.OK {
			t.Errorf("ok, although an agent was not asked: %+v", r.Hops())
		}
	})
}

// Of two failures at the same time both are explained, and nothing else; a trace finds the one that the packet meets first.
func TestExplainPairs(t *testing.T) {
	const labs = 3 // at the same time: most of the time they wait for packets that do not arrive
	for lab := range labs {
		t.Run(fmt.Sprintf("lab %d", lab), func(t *testing.T) {
			t.Parallel()
			dir, a, b := explainLab(t)
			all := faults()
			for i, f := range all {
				if f.wait > 0 { // the agent repairs it once only
					f.apply(t, dir)()
					all[i].inject, all[i].wait = f.inject[len(f.inject)-1:], 0
				}
			}
			for i, f := range all {
				for j, g := range all[i+1:] {
					if (i+j)%labs == lab && f.coexists(g) {
						verifyPair(t, dir, a, b+":8080", f, g)
					}
				}
			}
			within(t, time.Minute, "explanation without a fault", func() bool {
				r, code := explained(t, dir, a, b+":8080")
				return code == 0 && r.State == explain.OK
			})
		})
	}
}

// verifyPair injects two failures.
func verifyPair(t *testing.T, dir, from, to string, f, g fault) {
	t.Helper()
	undoFirst, undoSecond := f.apply(t, dir), g.apply(t, dir)
	var faults []explain.Hop
	named := sometime(30*time.Second, func() bool { // another program needs a moment
		r, _ := explained(t, dir, from, to)
		faults = r.Faults()
		other := slices.ContainsFunc(faults, func(h explain.Hop) bool { return !f.explains(h) && !g.explains(h) })
		return slices.ContainsFunc(faults, f.is) && slices.ContainsFunc(faults, g.is) && !other
	})
	if !named {
		t.Errorf("%s, and %s: %+v", f.name, g.name, faults)
	}
	first := f
	if f.place() > g.place() {
		first = g
	}
	if r := first.traced(t, dir, from, to, f, g); !first.loses(r) {
		t.Errorf("%s, and %s: trace: %s at %q: %s", f.name, g.name, r.State, r.Where, r.Cause)
	}
	undoSecond()
	undoFirst()
}

// Tables that all namespaces of a host share are named when they are full, and trace shows where the packet is lost.
func TestExplainFullTables(t *testing.T) {
	for _, c := range []struct {
		name, limit, value, cause string
		fill                      func(t *testing.T, dir, b string)
		lost                      bool
	}{
		{
			"connections", "net/netfilter/nf_conntrack_max", "16", "the connection table is full",
			func(t *testing.T, dir, b string) {
				var probes []probe.Probe
				for port := range 40 {
					probes = append(probes, probe.Probe{Kind: probe.UDP, To: fmt.Sprintf("%s:%d", b, 7000+port), Millis: 50})
				}
				text, err := json.Marshal(probes)
				if err != nil {
					t.Fatal(err)
				}
				inNode(t, dir, "default/a", filepath.Join(nettest.Programs(t), "weft"), "connectivity-test", "probe", string(text))
			}, true,
		},
		{
			"neighbors", "net/ipv4/neigh/default/gc_thresh3", "1", "the neighbor table is full",
			func(t *testing.T, dir, _ string) {
				for i := range 5 {
					weft(t, "lab", "exec", "--dir", dir, "node2", "--", "ping", "-c1", "-W1", fmt.Sprintf("172.18.0.%d", 100+i))
				}
			}, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			nettest.NeedHostSysctl(t, c.limit)
			dir, a, b := explainLab(t)
			for _, node := range []string{"node1", "node2"} { // a rule that needs connections; without one none is tracked
				inNode(
					t,
					dir,
					node,
					"nft",
					"add table inet track; add chain inet track f { type filter hook forward priority 10; }; "+
						"add rule inet track f ct state established accept",
				)
			}
			if r, code := explained(t, dir, a, b+":8080"); code != 0 {
				t.Fatalf("before: %+v", r.Faults())
			}
			nettest.HostSysctl(t, c.limit, c.value)
			c.fill(t, dir, b)
			r, code := explained(t, dir, a, b+":8080")
			if code != 1 || len(r.Faults()) == 0 {
				t.Errorf("exit code %d: %+v", code, r)
			}
			for _, h := range r.Faults() {
				if h.ID != "limits" || !strings.Contains(h.Cause, c.cause) || !strings.Contains(h.Object, c.limit) {
					t.Errorf("%s at %s: %s: %s", h.ID, h.Where, h.Cause, h.Object)
				}
			}
			if got, _ := traced(t, dir, a, b+":8080"); c.lost && got.State != packettrace.Lost {
				t.Errorf("trace: %+v", got)
			}
		})
	}
}

// explain agrees with the packets of lab reach and with policy why: without policies every pair of pods is connected, with
// some exactly the pairs that they allow.
func TestExplainAgrees(t *testing.T) {
	for _, design := range [][]string{
		{}, {"--encapsulation", "vxlan", "--addresses", "pools"}, {"--design", "bridge", "--encapsulation", "udp"},
	} {
		t.Run(strings.Join(design, " "), func(t *testing.T) {
			dir := labDir(t)
			must(t, append([]string{"lab", "up", "--nodes", "2", "--from", examples, "--dir", dir}, design...)...)
			settled(t, dir)
			var pods []string
			for _, p := range status(t, dir).Pods {
				if !p.HostNetwork {
					pods = append(pods, p.Namespace+"/"+p.Name)
				}
			}
			if len(pods) < 3 {
				t.Fatalf("pods: %q", pods)
			}
			pairs := func(check func(from, to string)) {
				for _, from := range pods {
					for _, to := range pods {
						if from != to {
							check(from, to)
						}
					}
				}
			}
			pairs(func(from, to string) {
				if r := weft(t, "explain", "--dir", dir, from, to); r.code != 0 {
					t.Errorf("%s to %s is connected: %s%s", from, to, r.stdout, r.stderr)
				}
			})
			text := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: some, namespace: default}\n" +
				"spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}\n"
			if err := os.WriteFile(filepath.Join(dir, "store", "some.yaml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			why := func(from, to string) int {
				return weft(t, "policy", "why", "--state-dir", filepath.Join(dir, "nodes", "node1", "agent"), from, to).code
			}
			denied := 0
			within(t, time.Minute, "policy is enforced", func() bool { return why("backend/db", "default/web") == 1 })
			pairs(func(from, to string) {
				want := why(from, to)
				denied += want
				within(t, time.Minute, "explain agrees with policy why about "+from+" to "+to, func() bool {
					return weft(t, "explain", "--dir", dir, from, to).code == want
				})
			})
			if denied == 0 {
				t.Error("the policy denies nothing")
			}
		})
	}
}

// addrOf returns a pod's IPv4 address.
func addrOf(t *testing.T, dir, pod string) netip.Addr {
	t.Helper()
	for _, p := range status(t, dir).Pods {
		if p.Name == pod {
			return p.IPs[0]
		}
	}
	t.Fatalf("no pod %s", pod)
	return netip.Addr{}
}

// killAgent kills a node's agent.
func killAgent(t *testing.T, dir, node string) {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		b, err := os.ReadFile(filepath.Join(process, "cmdline"))
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err != nil || !strings.Contains(line, filepath.Join(dir, "nodes", node)) || !strings.Contains(line, "weft-agent") {
			continue // other processes may end while this looks
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no agent of %s", node)
}

// Support bundles have what the agents have answered: an explanation from them is the same as that of the cluster, also
// later and elsewhere, and what no bundle has is unknown.
func TestExplainFromBundles(t *testing.T) {
	dir, a, b := explainLab(t)
	inNode(t, dir, "node2", "nft",
		"add table inet fw; add chain inet fw f { type filter hook forward priority 10; policy drop; }")
	inNode(t, dir, "node2", "nft", `add rule inet fw f counter comment "token: hunter2"`)
	began := time.Now().UTC().Format(explain.TimeLayout)
	live := weft(t, "explain", "--dir", dir, "-o", "json", "a", b+":8080")
	asked := time.Now().UTC().Format(explain.TimeLayout)
	bundles := map[string]string{}
	for _, node := range []string{"node1", "node2"} {
		bundles[node] = filepath.Join(t.TempDir(), node+".tar.gz")
		inNode(t, dir, node, filepath.Join(nettest.Programs(t), "weft"), "support-bundle", "-o", bundles[node],
			"--socket", filepath.Join(dir, "nodes", node, "agent", "agent.sock"))
	}
	must(t, "lab", "down", "--dir", dir)
	from := func(args ...string) result {
		t.Helper()
		return weft(t, append([]string{"explain", "-o", "json"}, args...)...)
	}
	all := from("--from", bundles["node1"], "--from", bundles["node2"], "a", b+":8080")
	for _, r := range decode[[]explain.Report](t, all.stdout) {
		if at := r.Recorded; at == nil || at.OldestAnswer < began || at.OldestAnswer > asked || at.Facts < asked {
			t.Errorf("asked from %s to %s; recorded %+v", began, asked, at)
		}
	}
	if all.code != 1 || withoutTimes(t, all.stdout) != withoutTimes(t, live.stdout) ||
		!strings.Contains(all.stdout, "policy of chain inet fw f is drop") {
		t.Errorf("exit code %d: %s%s\nlive: %s", all.code, all.stdout, all.stderr, live.stdout)
	}
	for name, c := range map[string][]string{
		"one node":            {"--from", bundles["node1"], a, b + ":8080"},
		"another question":    {"--from", bundles["node1"] + "," + bundles["node2"], a, b + ":8081"},
		"the other direction": {"--from", bundles["node1"] + "," + bundles["node2"], "b", "a"},
	} {
		r := from(c...)
		if r.stdout == "" {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.stderr)
			continue
		}
		for _, one := range decode[[]explain.Report](t, r.stdout) {
			if one.State == explain.OK {
				t.Errorf("%s: ok without answers: %+v", name, one.Hops())
			}
		}
	}
	damaged := filepath.Join(t.TempDir(), "damaged.tar.gz")
	whole, err := os.ReadFile(bundles["node1"])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, whole[:len(whole)/20], 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"missing":      {[]string{"/nonexistent"}, "--from"},
		"not a bundle": {[]string{os.Args[0]}, "not a support bundle"},
		"damaged":      {[]string{damaged}, "not a support bundle"},
		"twice":        {[]string{bundles["node1"], bundles["node1"]}, "both are of node node1"},
	} {
		r := from("--from", strings.Join(c.files, ","), a, b)
		if r.code == 0 || !strings.Contains(r.stderr, c.want) || !strings.Contains(r.stderr, c.files[0]) {
			t.Errorf("%s: exit code %d: %s", name, r.code, r.stderr)
		}
	}
	if r := from("--from", bundles["node1"]+","+bundles["node2"], "a", "bb"); r.code != 1 ||
		!strings.Contains(r.stderr, "default/b") {
		t.Errorf("a wrong name: exit code %d: %s", r.code, r.stderr)
	}
}

// withoutTimes returns explanations without the age of what they are made of.
func withoutTimes(t *testing.T, text string) string {
	t.Helper()
	all := decode[[]explain.Report](t, text)
	for i := range all {
		all[i].Recorded = nil
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// support-bundle of a lab explains a connection and writes a bundle of each node, from which the explanation is
// complete; a node whose agent does not run is named.
func TestSupportBundles(t *testing.T) {
	dir, a, b := explainLab(t)
	into := filepath.Join(t.TempDir(), "bundles")
	connection := a + "," + b + ":8080"
	r := must(t, "support-bundle", "--dir", dir, "-o", into, "--explain", connection)
	files := strings.Fields(r.stdout)
	want := []string{
		filepath.Join(into, "node1.tar.gz"), filepath.Join(into, "node2.tar.gz"), filepath.Join(into, "objects.json"),
	}
	if !slices.Equal(files, want) {
		t.Fatalf("wrote %q, want %q", files, want)
	}
	for _, from := range []string{strings.Join(files, ","), into} {
		explained := must(t, "explain", "-o", "json", "--from", from, a, b+":8080")
		for _, one := range decode[[]explain.Report](t, explained.stdout) {
			if one.State != explain.OK || one.Recorded == nil {
				t.Errorf("from %s: %s, recorded %v: %+v", from, one.State, one.Recorded, one.Faults())
			}
		}
	}
	if r := weft(t, "support-bundle", "--dir", dir, "-o", into); r.code != 1 || !strings.Contains(r.stderr, "exists") {
		t.Errorf("twice: exit code %d: %s", r.code, r.stderr)
	}
	own := filepath.Join(t.TempDir(), "own.tar.gz")
	inNode(t, dir, "node1", filepath.Join(nettest.Programs(t), "weft"), "support-bundle", "-o", own,
		"--explain", a+","+b+":8081", "--socket", filepath.Join(dir, "nodes", "node1", "agent", "agent.sock"))
	asked := decode[[]explain.Report](t, weft(t, "explain", "-o", "json", "--from", own, a, b+":8081").stdout)
	if len(asked) != 1 || asked[0].Recorded == nil || asked[0].Recorded.OldestAnswer == "" {
		t.Errorf("a node's bundle has no answers: %+v", asked)
	}
	killAgent(t, dir, "node2")
	into = filepath.Join(t.TempDir(), "again")
	r = weft(t, "support-bundle", "--dir", dir, "-o", into)
	if _, err := os.Stat(filepath.Join(into, "node1.tar.gz")); err != nil || r.code != 1 ||
		!strings.Contains(r.stderr, "node2") || strings.Contains(r.stderr, "node1:") {
		t.Errorf("without an agent: exit code %d, %v: %s", r.code, err, r.stderr)
	}
}
