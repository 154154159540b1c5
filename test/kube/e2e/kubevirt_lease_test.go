// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// bindings are those of KubeVirt and weft's, as an interface has them, in the order in which they are reported.
func bindings() []struct{ name, yaml string } {
	return []struct{ name, yaml string }{
		{"masquerade", "masquerade: {}"},
		{"weft-direct", "binding: {name: weft-direct}"},
		{"bridge", "bridge: {}"},
		{"passtBinding", fmt.Sprintf("passtBinding: {}, ports: [{port: %d}]", answerPort)}, // all ports need some 130,000 open files
	}
}

// fromEnv returns a number of an environment variable, or else another one.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a number of 1 or more", name, text)
	}
	return n
}

// testLeaseTimes measures, with each binding, the time from the creation of a VM to its DHCP lease, and how much of it weft
// takes: the time of the runtime's calls to attach the VM's pod. The guest is reached through each of them.
func (c kubeVirtCluster) testLeaseTimes(t *testing.T) {
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 3)
	rounds := fromEnv(t, "WEFT_KUBEVIRT_LEASES", 1)
	runs, leases, adds := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for round := range rounds {
		for _, b := range bindings() {
			t.Run(fmt.Sprint(b.name, round), func(t *testing.T) {
				before := c.attaching(t)
				began := time.Now()
				c.apply(t, ns, vmManifest("vm", b.yaml))
				defer c.kubectl(t, "-n", ns, "delete", "vm", "vm", "--timeout=180s")
				v := c.running(t, ns, "")
				running := time.Since(began)
				lease := c.awaitLease(t, ns)
				leased := time.Since(began)
				add := c.attaching(t) - before
				runs[b.name], leases[b.name], adds[b.name] = append(runs[b.name], running), append(leases[b.name], leased), append(adds[b.name], add)
				t.Logf("%s: %s", b.name, lease)
				if round == 0 {
					for _, p := range pods {
						c.reachByFamily(t, ns, p, v.Status.Interfaces[0].IPAddresses[0])
					}
				}
			})
		}
	}
	for _, b := range bindings() {
		if n := len(leases[b.name]); n > 0 {
			t.Logf("%s, median (least to most) of %d VMs: runs after %s, has a lease after %s, of which weft took %s",
				b.name, n, spread(runs[b.name]), spread(leases[b.name]), spread(adds[b.name]))
		}
	}
}

// attaching returns how much time the agents have taken for attaching pods so far.
func (c kubeVirtCluster) attaching(t *testing.T) time.Duration {
	t.Helper()
	sum := 0.0
	for _, node := range c.nodes(t) {
		out := c.must(t, "exec", node, "curl", "-sS", "-m", "5", "http://127.0.0.1:9119/metrics")
		for line := range strings.Lines(out) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
			if ok && strings.HasPrefix(name, "weft_cni_call_duration_seconds_sum{") && strings.Contains(name, `verb="ADD"`) {
				s, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatalf("metric %s: %v", line, err)
				}
				sum += s
			}
		}
	}
	return time.Duration(sum * float64(time.Second))
}
