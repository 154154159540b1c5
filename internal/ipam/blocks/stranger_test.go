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

// told is a log for looking through.
type told struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *told) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *told) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), text)
}

// twins are two machines that run as one node.
func twins(t *testing.T, path string, gone time.Duration, machines ...string) (nodes []*node, logs []*told) {
	for i, machine := range machines {
		log := &told{}
		nodes = append(nodes, join(t, path, "a", func(c *Config) {
			c.Random = rand.New(rand.NewSource(int64(i)))
			c.Machine, c.Gone, c.Log = machine, gone, slog.New(slog.NewTextHandler(log, nil))
		}))
		logs = append(logs, log)
	}
	return nodes, logs
}

const twoMachines = "two machines run as this node"

// TestTwoMachinesOfOneName: they share no block, and say what is wrong.
func TestTwoMachinesOfOneName(t *testing.T) {
	_, path := cluster(t, nil)
	nodes, logs := twins(t, path, 4*time.Second, "m1", "m2")
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
		eventually(t, fmt.Sprint("machine ", i, " says it"), func() bool { return log.has(twoMachines) })
	}
	for _, n := range nodes {
		eventually(t, "it is written down for weft doctor", func() bool {
			n.engine.namesakes.mu.Lock()
			defer n.engine.namesakes.mu.Unlock()
			return len(n.engine.namesakes.told) == 1
		})
	}
	time.Sleep(6 * time.Second) // both live: however long, nothing is taken over
	for i := range 40 {
		a.mustAdd(conf, fmt.Sprint("more a", i))
		b.mustAdd(conf, fmt.Sprint("more b", i))
	}
	checkOnce(t, a, b)
	all, err := a.config.Objects.List(context.Background(), store.AddressBlocks())
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string]bool{}
	for _, o := range all {
		spec, err := o.AddressBlock()
		if err != nil {
			t.Fatal(err)
		}
		machines[spec.Machine] = true
	}
	if !machines["m1"] || !machines["m2"] {
		t.Errorf("weft ipam check cannot tell that blocks are of two machines: %v", machines)
	}
}

// TestInstalledAnew: what a machine had that is gone is that of the one in its place, after a while.
func TestInstalledAnew(t *testing.T) {
	_, path := cluster(t, nil)
	nodes, logs := twins(t, path, 4*time.Second, "old", "new")
	before, after := nodes[0], nodes[1]
	conf := rangeConf1("10.0.0.0/29", `"exclude":["10.0.0.3","10.0.0.4","10.0.0.5","10.0.0.6"]`)
	before.mustAdd(conf, "1")
	after.run()
	after.mustAdd(conf, "1")
	if _, err := after.add(conf, "2"); err == nil {
		t.Error("an address of a machine that may be alive was given")
	}
	eventually(t, "the address of the machine that is gone", func() bool {
		after.engine.mem.mu.Lock()
		defer after.engine.mem.mu.Unlock()
		return len(after.engine.mem.pools["whereabouts"].blocks) == 2
	})
	after.mustAdd(conf, "2")
	if logs[1].has(twoMachines) {
		t.Error("a machine that was silent was taken for alive")
	}
	eventually(t, "nothing is left of it", func() bool {
		after.engine.namesakes.mu.Lock()
		defer after.engine.namesakes.mu.Unlock()
		return len(after.engine.namesakes.strangers) == 0 && len(after.engine.namesakes.told) == 0
	})
}

// TestInstalledAnewWithoutAPool: what a machine had that is gone of a pool that the one in its place does not use goes
// back, too.
func TestInstalledAnewWithoutAPool(t *testing.T) {
	_, path := cluster(t, map[string]string{
		"one.yaml": poolYAML("one", "10.1.0.0/24", 28), "two.yaml": poolYAML("two", "10.2.0.0/24", 28, "Manual"),
	})
	nodes, _ := twins(t, path, time.Second, "old", "new")
	before, after := nodes[0], nodes[1]
	if _, err := before.addCluster(calicoConf(), "1", model.AddressWishes{Pools4: []string{"two"}}); err != nil {
		t.Fatal(err)
	}
	after.config.Idle = 500 * time.Millisecond
	after.start()
	after.run()
	if _, err := after.addCluster(calicoConf(), "1", model.AddressWishes{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "only the pool that is used has blocks", func() bool {
		all, err := after.line.List(t.Context(), store.AddressBlocks())
		return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(o store.Object) bool {
			return strings.Contains(string(o.Raw), `"pool":"two"`)
		})
	})
}

// TestClones: two machines that cannot be told apart are noticed by their claims.
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
	eventually(t, "one of them says it", func() bool { return logs[0].has(twoMachines) || logs[1].has(twoMachines) })
}
