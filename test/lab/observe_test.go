// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// observed is a weft observe that runs.
type observed struct {
	t     *testing.T
	flows chan flow.Record
	errs  *output
}

// output is what a program prints while it runs.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// follow starts weft observe --follow; it ends with the test.
func follow(t *testing.T, dir string, args ...string) *observed {
	t.Helper()
	args = append([]string{"observe", "--dir", dir, "--follow", "-o", "jsonl"}, args...)
	cmd := exec.Command(filepath.Join(nettest.Programs(t), "weft"), args...)
	o := &observed{t, make(chan flow.Record, 1<<20), &output{}}
	cmd.Stderr = o.errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r flow.Record
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				o.flows <- r
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("weft observe: %v: %s", err, o.errs)
		}
	})
	return o
}

// next returns the next flow that is wanted; while there is none, it calls cause again.
func (o *observed) next(what string, cause func(), wanted func(flow.Record) bool) flow.Record {
	o.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		cause()
		for late := time.After(3 * time.Second); ; {
			select {
			case r := <-o.flows:
				if wanted(r) {
					return r
				}
				continue
			case <-late:
			}
			break
		}
	}
	o.t.Fatalf("no flow: %s; stderr: %s", what, o.errs)
	return flow.Record{}
}

// A connection is seen on both nodes with its names and the policy that allows it, and a packet that a policy denies.
// An agent without a reader has no socket for it, also one that replaces an agent that was killed.
func TestObserve(t *testing.T) {
	dir, _, b := explainLab(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080}, {port: 8081, protocol: UDP}]}]}
`
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "lab", "apply", "--dir", dir, "-f", policy)
	sockets := func(node string) (count int) {
		for line := range strings.Lines(inNode(t, dir, node, "cat", "/proc/net/netlink")) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == "12" && f[2] != "0" { // of netfilter
				if groups, err := strconv.ParseUint(f[3], 16, 32); err == nil && groups&0b101 != 0 { // conntrack
					count++
				}
			}
		}
		return count
	}
	before := sockets("node1")
	o := follow(t, dir)
	connect := func() { weft(t, "lab", "exec", "--dir", dir, "a", "--", "bash", "-c", "echo > /dev/tcp/"+b+"/8080") }
	r := o.next("connection", connect, func(r flow.Record) bool {
		return r.Node == "node2" && r.Kind == flow.New && r.To.Port == 8080 && len(r.Decisions) > 0 && r.Decisions[0].Rule == 0
	})
	if r.From.Name != "default/a" || r.To.Name != "default/b" || r.Verdict != flow.Allowed || r.Direction != flow.Ingress ||
		r.Decisions[0].Policies[0].Name != "web" {
		t.Errorf("%+v", r)
	}
	r = o.next("connection at its source", connect, func(r flow.Record) bool {
		return r.Node == "node1" && r.Kind == flow.New && r.To.Port == 8080
	})
	if r.To.Name != "default/b" || r.To.Node != "node2" || r.Direction != flow.Egress {
		t.Errorf("%+v", r)
	}
	if got := sockets("node1"); got != before+2 && got != before { // by netlink or eBPF
		t.Errorf("%d sockets of conntrack while it runs, %d before", got, before)
	}
	if !strings.Contains(o.errs.String(), "dropped packets are not observed") { // no eBPF
		send := func() { weft(t, "lab", "exec", "--dir", dir, "a", "--", "bash", "-c", "echo > /dev/udp/"+b+"/53") }
		r = o.next("denied packet", send, func(r flow.Record) bool { return r.Kind == flow.Denied })
		if r.Node != "node2" || r.To.Name != "default/b" || r.Decisions[0].Policies[0].Name != "web" {
			t.Errorf("%+v", r)
		}
	}
	within(t, time.Minute, "both nodes' decisions are explained", func() bool {
		why := must(t, "observe", "--dir", dir, "--why", "--from-pod", "a", "--to-port", "8080", "--last", "1").stdout
		return strings.Contains(why, "egress at default/a on node1: ok") &&
			strings.Contains(why, "ingress at default/b on node2: ok, allowed NetworkPolicy default/web")
	})
	o.flood(dir, b, "udp", 8081)
	o.flood(dir, b, "tcp", 8080)
	rules := inNode(t, dir, "node1", "nft", "list", "tables")
	killAgent(t, dir, "node1")
	within(t, time.Minute, "the sockets of the killed agent are gone", func() bool { return sockets("node1") <= before })
	if now := inNode(t, dir, "node1", "nft", "list", "tables"); now != rules {
		t.Errorf("tables %q, before %q", now, rules)
	}
}

// Agents of a lab observe what --observe says, from their beginning.
func TestObserveLevel(t *testing.T) {
	dir := labDir(t)
	from := podsOnTwoNodes(t)
	must(t, "lab", "up", "--nodes", "2", "--observe", "flows", "--from", from, "--dir", dir)
	b := addrOf(t, dir, "b").String()
	within(t, time.Minute, "the connection is in the past", func() bool {
		// Agents begin to observe while the lab is complete already.
		weft(t, "lab", "exec", "--dir", dir, "a", "--", "bash", "-c", "echo > /dev/udp/"+b+"/5353")
		out := must(t, "observe", "--dir", dir, "--since", "10m", "--to-port", "5353")
		if strings.Contains(out.stderr, "keeps no flows") {
			t.Fatal(out.stderr)
		}
		return strings.Contains(out.stdout, " default/a ") && strings.Contains(out.stdout, "udp new allowed")
	})
}

// flood connects from pod a to pod b as fast as the host can, each time from another port: each node reports each of the
// connections, or that it is lost.
func (o *observed) flood(dir, b, network string, port uint16) {
	t := o.t
	t.Helper()
	const made, workers, first = 20000, 4, 10000
	pods := status(t, dir).Pods
	i := slices.IndexFunc(pods, func(p lab.PodStatus) bool { return p.Name == "a" })
	ns, err := netns.Open(pods[i].Netns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	lostBefore := map[string]int{"node1": o.lost("node1"), "node2": o.lost("node2")}
	began := time.Now()
	done := make(chan error, workers)
	for w := range workers {
		go func() {
			done <- ns.Do(func() error {
				for i := w; i < made; i += workers {
					if err := connectOnce(network, first+i, net.JoinHostPort(b, strconv.Itoa(int(port)))); err != nil {
						return err
					}
				}
				return nil
			})
		}()
	}
	for range workers {
		err = errors.Join(err, <-done)
	}
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	seen := map[string]map[uint16]bool{"node1": {}, "node2": {}}
	lost := func(node string) int { return o.lost(node) - lostBefore[node] }
	for end := time.After(60 * time.Second); ; {
		select {
		case r := <-o.flows:
			if r.To.Port == port && r.Protocol == network && r.From.Port >= first && r.From.Port < first+made && r.Kind == flow.New && r.From.Name == "default/a" && r.To.Name == "default/b" {
				seen[r.Node][r.From.Port] = true
			}
			continue
		case <-time.After(200 * time.Millisecond):
			if len(seen["node1"])+lost("node1") >= made && len(seen["node2"])+lost("node2") >= made {
				t.Logf("%d connections of %s in %s; node1: %d seen, %d lost; node2: %d seen, %d lost",
					made, network, took, len(seen["node1"]), lost("node1"), len(seen["node2"]), lost("node2"))
				return
			}
			continue
		case <-end:
			t.Fatalf("%d of %s made; node1: %d seen, %d lost; node2: %d seen, %d lost",
				made, network, len(seen["node1"]), lost("node1"), len(seen["node2"]), lost("node2"))
		}
	}
}

// connectOnce sends a datagram, or makes a TCP connection and resets it.
func connectOnce(network string, from int, to string) error {
	local := net.Addr(&net.UDPAddr{Port: from})
	if network == "tcp" {
		local = &net.TCPAddr{Port: from}
	}
	c, err := (&net.Dialer{LocalAddr: local}).Dial(network, to)
	if err != nil {
		return err
	}
	if tcp, is := c.(*net.TCPConn); is {
		return errors.Join(tcp.SetLinger(0), tcp.Close())
	}
	_, err = c.Write([]byte("x")) // after an answer that no socket is there, this is an error
	_ = errors.Join(err, c.Close())
	return nil
}

// lost sums up the new connections that a node has reported as lost.
func (o *observed) lost(node string) (sum int) {
	o.t.Helper()
	for line := range strings.Lines(o.errs.String()) {
		_, text, ok := strings.Cut(line, node+" lost: ")
		if !ok {
			continue
		}
		for part := range strings.SplitSeq(text, ", ") {
			if n, what, _ := strings.Cut(part, " "); strings.HasPrefix(what, "new ") || strings.HasPrefix(what, "flows ") {
				count, err := strconv.Atoi(n)
				if err != nil {
					o.t.Fatalf("%q: %v", line, err)
				}
				sum += count
			}
		}
	}
	return sum
}
