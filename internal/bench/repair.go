// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// RepairConfig says what Repair measures.
type RepairConfig struct {
	// Agent is the program weft-agent, BinDir the directory of the plugins.
	Agent, BinDir string
	Pods          int           // attachments present
	N             int           // samples of each thing that is taken away
	Flushes       int           // samples of what is taken from all pods at once
	Idle          time.Duration // how long the idle agent is watched; 0 leaves that out
	Seed          uint64
	Log           *slog.Logger
}

// mostRepairPods is what the node's range of addresses is enough for, beside a namespace's descriptor for each.
const mostRepairPods = 1000

func (cfg RepairConfig) check() error {
	switch {
	case cfg.Pods < 1 || cfg.Pods > mostRepairPods:
		return model.Faultf(model.CodeInvalidConf, fmt.Sprintf("give 1 to %d", mostRepairPods), "bench: --pods %d", cfg.Pods)
	case cfg.N < 0 || cfg.Flushes < 0 || cfg.Idle < 0:
		return model.Faultf(model.CodeInvalidConf, "give 0 or more", "bench: -n %d, --flushes %d, --idle %s", cfg.N,
			cfg.Flushes, cfg.Idle)
	}
	return nil
}

const (
	// repairCalm is between two samples: what was just looked at waits a little until it is looked at again.
	repairCalm = time.Second
	// repairLook is between two looks whether something is there again; repairLimit is when it is given up.
	repairLook, repairLimit = time.Millisecond, time.Minute
)

// Repair measures how long the agent needs to put back what is taken from its pods, and what it costs when nothing
// happens.
func Repair(ctx context.Context, cfg RepairConfig) (RepairReport, error) {
	if err := cfg.check(); err != nil {
		return RepairReport{}, err
	}
	dir, volatile, remove, err := places()
	if err != nil {
		return RepairReport{}, err
	}
	defer remove()
	impl := Impl{Name: "weft-agent", BinDir: cfg.BinDir, Agent: cfg.Agent}
	w, err := newWorld(ctx, impl, routedChain(), dir, volatile)
	if err != nil {
		return RepairReport{}, err
	}
	defer w.close()
	b := &repairBench{cfg: cfg, world: w, random: rand.New(rand.NewPCG(cfg.Seed, 0)), values: map[repairKey][]float64{}}
	defer b.close()
	if err := b.fill(ctx); err != nil {
		return RepairReport{}, err
	}
	if err := b.idle(ctx); err != nil {
		return RepairReport{}, err
	}
	if err := b.singles(ctx); err != nil {
		return RepairReport{}, err
	}
	if err := b.flushes(ctx); err != nil {
		return RepairReport{}, err
	}
	return b.report(), nil
}

// routedChain is the network of the pods: the routed design, two families, with everything that it has on the node.
func routedChain() Chain {
	return Chain{
		Name: "routed", list: map[string]any{"cniVersion": "1.0.0", "name": "pods", "plugins": []any{map[string]any{
			"type": "calico", "mtu": 1400, "policy_setup_timeout_seconds": 0, "ipam": map[string]any{
				"type":   "host-local",
				"ranges": []any{[]any{map[string]any{"subnet": "10.64.0.0/16"}}, []any{map[string]any{"subnet": "fd00:64::/64"}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
			},
		}}},
	}
}

type repairBench struct {
	cfg    RepairConfig
	world  *world
	random *rand.Rand
	node   *repairNode
	pods   []*repairPod
	values map[repairKey][]float64
}

func (b *repairBench) add(k repairKey, v float64) { b.values[k] = append(b.values[k], v) }

// fill attaches the pods. Their namespaces stay open: the agent finds them by this process's descriptors.
func (b *repairBench) fill(ctx context.Context) (err error) {
	b.cfg.Log.Info("filling", "pods", b.cfg.Pods)
	if b.node, err = newRepairNode(b.world.node); err != nil {
		return err
	}
	for range b.cfg.Pods {
		p, err := b.world.newPod()
		if err != nil {
			return err
		}
		b.pods = append(b.pods, &repairPod{pod: p})
		if _, err := b.world.add(ctx, p, b.world.nextID()); err != nil {
			return fmt.Errorf("pod %d: %w: %s", len(b.pods), err, b.world.log.String())
		}
	}
	return b.node.learn(b.pods)
}

func (b *repairBench) close() {
	for _, p := range b.pods {
		if p.kept != nil {
			p.kept.Close()
		}
		_ = p.ns.Close()
	}
	if b.node != nil {
		b.node.close()
	}
}

// idle watches the agent while nothing happens.
func (b *repairBench) idle(ctx context.Context) error {
	if b.cfg.Idle == 0 {
		return nil
	}
	if err := pause(ctx, 5*repairCalm); err != nil { // what the pods' own beginnings cause is over
		return err
	}
	b.cfg.Log.Info("watching the idle agent", "for", b.cfg.Idle)
	begin, before := time.Now(), b.world.spent()
	if err := pause(ctx, b.cfg.Idle); err != nil {
		return err
	}
	spent, took := b.world.spent()-before, time.Since(begin)
	b.add(repairKey{What: "idle agent", Metric: "cpu", Unit: "ms"}, float64(spent)/millis)
	b.add(repairKey{What: "idle agent", Metric: "cpu", Unit: "% of a core"}, 100*float64(spent)/float64(took))
	return nil
}

// singles takes one thing away at a time: another pod's each time, since what goes a second time in a pod within ten
// minutes is left.
func (b *repairBench) singles(ctx context.Context) error {
	all := b.node.singles()
	b.cfg.Log.Info("taking one thing away at a time", "things", len(all), "n", b.cfg.N)
	for i := range b.cfg.N {
		for _, j := range b.random.Perm(len(all)) {
			d := all[j]
			if d.inPod && i >= len(b.pods) {
				continue
			}
			if err := b.sample(ctx, d, b.pods[i%len(b.pods):i%len(b.pods)+1], "one object"); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushes takes a kind of thing from all pods at once.
func (b *repairBench) flushes(ctx context.Context) error {
	all := b.node.flushes()
	b.cfg.Log.Info("taking something from all pods at once", "things", len(all), "n", b.cfg.Flushes)
	for range b.cfg.Flushes {
		for _, j := range b.random.Perm(len(all)) {
			if err := b.sample(ctx, all[j], b.pods, fmt.Sprintf("all %d pods", len(b.pods))); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample takes something away and waits until it is there again.
func (b *repairBench) sample(ctx context.Context, d repairDrift, pods []*repairPod, extent string) error {
	if err := pause(ctx, repairCalm); err != nil {
		return err
	}
	begin := time.Now()
	if err := d.take(pods); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	for {
		there, err := d.there(pods)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		took := time.Since(begin)
		if there {
			b.add(repairKey{Extent: extent, What: d.name, Metric: "time", Unit: "ms"}, float64(took)/millis)
			return nil
		}
		if took > repairLimit {
			return fmt.Errorf("%s: not repaired after %s: %s", d.name, repairLimit, b.world.log.String())
		}
		if err := pause(ctx, repairLook); err != nil {
			return err
		}
	}
}

// pause waits, unless the run ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
