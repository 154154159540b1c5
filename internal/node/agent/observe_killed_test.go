// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestObserveKilled: an agent with observe.level flows or denied is killed at any moment, also while it starts. The next one
// without it restores the node: its settings, rules and links are those of before.
func TestObserveKilled(t *testing.T) {
	nettest.EndToEnd(t)
	p := newTwo(t, "encapsulation: host-gw")
	n1, n2 := p.nodes[0], p.nodes[1]
	const accounting = "/proc/sys/net/netfilter/nf_conntrack_acct"
	nettest.Run(t, n1.node, "sh", "-c", "echo 0 >"+accounting)
	config := func(observe string) {
		n1.configured(fmt.Sprintf("install: {confDir: %q}\nnetwork: {mode: cluster, encapsulation: host-gw, masquerade: true, clusterCIDRs: [10.99.0.0/16]}\n%s",
			n1.path("net.d"), observe))
	}
	n1.stop()
	config("")
	n1.start()
	list := n1.ownList()
	pod1, _ := n1.shopPod(list, "web", nettest.NS(t, "web"))
	_, addrs2 := p.pod(n2, "pod2")
	p.reaches(pod1, addrs2)
	before := n1.host()
	counted := false
	for round := range 8 {
		level := []string{"flows", "denied"}[round%2]
		n1.stop()
		config(fmt.Sprintf("observe: {level: %s, file: {path: %q}}\n", level, n1.path("flows.json")))
		if round < 4 {
			n1.start()
			p.reaches(pod1, addrs2)
			if level == "flows" {
				p.until("packets are counted", func() bool { return read(t, n1, accounting) == "1" })
				counted = true
			}
			n1.kill()
		} else { // in the middle of its start
			cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-agent"), append([]string{
				"agent", "--node", "n1", "--socket", n1.socket(), "--state-dir", n1.path("state"), "--log-level", "warn",
			}, n1.args...)...)
			if err := n1.node.Do(cmd.Start); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		config("")
		n1.start()
		p.until("the setting is restored", func() bool { return read(t, n1, accounting) == "0" })
		if diff := n1.settled(before); diff != "" {
			t.Fatalf("round %d, level %s: left behind: %s", round, level, diff)
		}
		p.reaches(pod1, addrs2)
	}
	if !counted {
		t.Error("packets were never counted")
	}
}

// read returns a file of the node's namespace.
func read(t *testing.T, n *world, path string) string {
	t.Helper()
	return strings.TrimSpace(nettest.Run(t, n.node, "cat", path))
}
