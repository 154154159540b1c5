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

// RepairConfig configures Repair.
type RepairConfig struct {
	// Agent is the program weft-agent, BinDir the directory of the plugins.
	Agent, BinDir string
	Pods          int           // attachments present
	N             int           // samples per kind of drift at one pod
	Flushes       int           // samples per kind of drift at all pods
	Idle          time.Duration // how long the idle agent is measured; 0 skips that
	Seed          uint64
	Log           *slog.Logger
}

// maxRepairPods is limited by the node's address range and by one descriptor per pod namespace.
const maxRepairPods = 1000

// Check validates the configuration.
func (cfg RepairConfig) Check() error {
	switch {
	case cfg.Pods < 1 || cfg.Pods > maxRepairPods:
		return model.OutOfRange("--pods", cfg.Pods, fmt.Sprintf("1 to %d", maxRepairPods), 250)
	case cfg.N < 0:
		return model.OutOfRange("-n", cfg.N, "0 or more", 50)
	case cfg.Flushes < 0:
		return model.OutOfRange("--flushes", cfg.Flushes, "0 or more", 20)
	case cfg.Idle < 0:
		return model.OutOfRange("--idle", cfg.Idle, "0s or more", "1m")
	}
	return nil
}

const (
	// repairPause is the time between two samples: the agent delays repeated checks of the same object.
	repairPause = time.Second
	// repairPoll is the polling interval for a repair, repairTimeout its limit.
	repairPoll, repairTimeout = time.Millisecond, time.Minute
)

// Repair measures how long the agent takes to repair drift at its pods, and the CPU time of an idle agent.
func Repair(ctx context.Context, cfg RepairConfig) (RepairReport, error) {
	if err := cfg.Check(); err != nil {
		return RepairReport{}, err
	}
	dir, volatile, remove, err := runDirs()
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
	if err := b.podDrifts(ctx); err != nil {
		return RepairReport{}, err
	}
	if err := b.flushDrifts(ctx); err != nil {
		return RepairReport{}, err
	}
	return b.report(), nil
}

// routedChain returns the pods' network: routed, dual-stack, with all its state on the node.
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

// fill attaches the pods. Their namespaces stay open, because CNI_NETNS refers to descriptors of this process.
func (b *repairBench) fill(ctx context.Context) (err error) {
	b.cfg.Log.Info("attaching pods", "pods", b.cfg.Pods)
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
	return b.node.snapshot(b.pods)
}

func (b *repairBench) close() {
	for _, p := range b.pods {
		if p.handle != nil {
			p.handle.Close()
		}
		_ = p.ns.Close()
	}
	if b.node != nil {
		b.node.close()
	}
}

// idle measures the CPU time of the agent while nothing changes.
func (b *repairBench) idle(ctx context.Context) error {
	if b.cfg.Idle == 0 {
		return nil
	}
	if err := pause(ctx, 5*repairPause); err != nil { // the agent has processed the changes that the ADDs caused
		return err
	}
	b.cfg.Log.Info("measuring the idle agent", "duration", b.cfg.Idle)
	begin, before := time.Now(), b.world.cpuTime()
	if err := pause(ctx, b.cfg.Idle); err != nil {
		return err
	}
	used, took := b.world.cpuTime()-before, time.Since(begin)
	b.add(repairKey{What: "idle agent", Metric: "cpu", Unit: "ms"}, float64(used)/millis)
	b.add(repairKey{What: "idle agent", Metric: "cpu", Unit: "% of a core"}, 100*float64(used)/float64(took))
	return nil
}

// podDrifts causes one drift at a time, each time at another pod: the agent repairs a pod only once in ten minutes.
func (b *repairBench) podDrifts(ctx context.Context) error {
	all := b.node.podDrifts()
	b.cfg.Log.Info("removing one object at a time", "kinds", len(all), "n", b.cfg.N)
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

// flushDrifts removes all objects of a kind at once.
func (b *repairBench) flushDrifts(ctx context.Context) error {
	all := b.node.flushDrifts()
	b.cfg.Log.Info("removing objects of all pods at once", "kinds", len(all), "n", b.cfg.Flushes)
	for range b.cfg.Flushes {
		for _, j := range b.random.Perm(len(all)) {
			if err := b.sample(ctx, all[j], b.pods, fmt.Sprintf("all %d pods", len(b.pods))); err != nil {
				return err
			}
		}
	}
	return nil
}

// sample causes a drift and waits until it is repaired.
func (b *repairBench) sample(ctx context.Context, d repairDrift, pods []*repairPod, extent string) error {
	if err := pause(ctx, repairPause); err != nil {
		return err
	}
	begin := time.Now()
	if err := d.remove(pods); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	for {
		restored, err := d.restored(pods)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		took := time.Since(begin)
		if restored {
			b.add(repairKey{Extent: extent, What: d.name, Metric: "time", Unit: "ms"}, float64(took)/millis)
			return nil
		}
		if took > repairTimeout {
			return fmt.Errorf("%s: not repaired after %s: %s", d.name, repairTimeout, b.world.log.String())
		}
		if err := pause(ctx, repairPoll); err != nil {
			return err
		}
	}
}

// pause waits for d or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
