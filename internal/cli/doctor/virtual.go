// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path/filepath"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// machinesWhole compares what is remembered of virtual machines with their pods.
func machinesWhole(ctx context.Context, n Node) []Finding {
	id, err := boot.ID()
	if err != nil {
		return warn("", "%v", err)
	}
	records, err := phase1.Config{Dir: filepath.Join(n.Config.StateDir, "vm"), Boot: id}.List()
	var out []Finding
	if err != nil {
		out = warn("a file of another version is left alone; weft vm phase1 writes the others anew", "%v", err)
	}
	for _, r := range records {
		out = append(out, machineWhole(ctx, r)...)
	}
	return out
}

func machineWhole(ctx context.Context, r phase1.Record) []Finding {
	for _, network := range r.Networks {
		if network.State != phase1.Finished {
			return bad("the agent takes it back when it starts; weft vm phase1 goes on with it", "machine %s: network %q is %s",
				r.Machine, network.Interface.Name, network.State)
		}
	}
	ns, err := netns.Open(r.Netns)
	if err != nil {
		return warn("the agent forgets it when it starts, or after the pod's DEL", "machine %s: its pod has gone: %v",
			r.Machine, err)
	}
	defer func() { _ = ns.Close() }()
	if name, err := phase1.Identity(ns); err != nil || name != r.Namespace {
		return warn("the agent forgets it when it starts, or after the pod's DEL", "machine %s: %s is another pod's by now",
			r.Machine, r.Netns)
	}
	if err := r.Still(ctx, ns); err != nil {
		return bad("", "machine %s: %v", r.Machine, err)
	}
	return nil
}
