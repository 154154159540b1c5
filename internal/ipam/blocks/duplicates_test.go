// SPDX-License-Identifier: Apache-2.0

package blocks

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// logBuffer is a log for looking through.
type logBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *logBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), text)
}

// twins are two hosts that run as one node.
func twins(t *testing.T, path string, gone time.Duration, hosts ...string) (nodes []*node, logs []*logBuffer) {
	for i, host := range hosts {
		log := &logBuffer{}
		nodes = append(nodes, join(t, path, "a", func(c *Config) {
			c.Random = rand.New(rand.NewSource(int64(i)))
			c.MachineID, c.NodeGoneAfter, c.Log = host, gone, slog.New(slog.NewTextHandler(log, nil))
		}))
		logs = append(logs, log)
	}
	return nodes, logs
}

const twoHosts = "two hosts run as this node"

// TestTwoHostsOfOneName: they share no block, and say what is wrong.
func TestTwoHostsOfOneName(t *testing.T) {
	_, path := cluster(t, nil)
	nodes, logs := twins(t, path, 15*time.Second, "m1", "m2")
	a, b := nodes[0], nodes[1]
	conf := rangeConf1("10.0.0.0/22")
	a.run()
	for i := range 20 {
		a.mustAdd(conf, fmt.Sprint("a", i))
	}
	b.run()
	for i := range 20 {
		b.mustAdd(conf, fmt.Sprint("b", i))
	}
	checkOnce(t, a, b)
	for i, log := range logs {
		eventually(t, fmt.Sprint("machine ", i, " says it"), func() bool { return log.has(twoHosts) })
	}
	for _, n := range nodes {
		eventually(t, "it is written down for weft doctor", func() bool {
			return len(n.engine.duplicates.Report()) == 1
		})
	}
	time.Sleep(20 * time.Second) // both live: however long, nothing is taken over
	for i := range 40 {
		a.mustAdd(conf, fmt.Sprint("more a", i))
		b.mustAdd(conf, fmt.Sprint("more b", i))
	}
	checkOnce(t, a, b)
	all, err := a.config.Objects.List(context.Background(), store.AddressBlocks())
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]bool{}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil {
			t.Fatal(err)
		}
		hosts[spec.MachineID] = true
	}
	if !hosts["m1"] || !hosts["m2"] {
		t.Errorf("weft ipam check cannot tell that blocks are of two machines: %v", hosts)
	}
}

// TestReinstalledHost: a reinstalled host takes over the blocks of its predecessor, after a while.
func TestReinstalledHost(t *testing.T) {
	_, path := cluster(t, nil)
	nodes, logs := twins(t, path, 15*time.Second, "old", "new")
	before, after := nodes[0], nodes[1]
	conf := rangeConf1("10.0.0.0/29", `"exclude":["10.0.0.3","10.0.0.4","10.0.0.5","10.0.0.6"]`)
	before.mustAdd(conf, "1")
	after.run()
	after.mustAdd(conf, "1")
	if _, err := after.add(conf, "2"); err == nil {
		t.Error("an address of a machine that may be alive was given")
	}
	eventually(t, "the address of the machine that is gone", func() bool {
		after.engine.state.mu.Lock()
		defer after.engine.state.mu.Unlock()
		return len(after.engine.state.pools["whereabouts"].blocks) == 2
	})
	after.mustAdd(conf, "2")
	if logs[1].has(twoHosts) {
		t.Error("a machine that was silent was taken for alive")
	}
	eventually(t, "nothing is left of it", func() bool {
		return !after.engine.duplicates.Any() && len(after.engine.duplicates.Report()) == 0
	})
}

// TestReinstalledHostWithoutPool: what a host had of a pool that its reinstalled successor does not use goes back, too.
func TestReinstalledHostWithoutPool(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"one.yaml": poolYAML("one", "10.1.0.0/24", 28), "two.yaml": poolYAML("two", "10.2.0.0/24", 28, "Manual"),
	})
	nodes, _ := twins(t, path, time.Second, "old", "new")
	before, after := nodes[0], nodes[1]
	if _, err := before.addCluster(calicoConf(), "1", model.AddressRequest{Pools4: []string{"two"}}); err != nil {
		t.Fatal(err)
	}
	after.config.Idle = 500 * time.Millisecond
	after.start()
	after.run()
	if _, err := after.addCluster(calicoConf(), "1", model.AddressRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the pool that is used has blocks", func() bool {
		all, err := after.line.List(t.Context(), store.AddressBlocks())
		return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(o store.Object) bool {
			return strings.Contains(string(o.Raw), `"pool":"two"`)
		})
	})
}

// TestClones: two hosts with one machine ID are detected by their claims.
func TestClones(t *testing.T) {
	_, path := cluster(t, nil)
	nodes, logs := twins(t, path, time.Minute, "m", "m")
	conf := rangeConf1("10.0.0.0/24")
	nodes[0].run()
	nodes[0].mustAdd(conf, "1")
	nodes[1].run()
	if _, err := nodes[1].add(conf, "1"); err != nil {
		t.Log(err)
	}
	eventually(t, "one of them says it", func() bool { return logs[0].has(twoHosts) || logs[1].has(twoHosts) })
}
