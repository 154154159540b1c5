// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/model"
)

// checkAllTime bounds a CHECK of all attachments; those that are left are counted.
const checkAllTime = 30 * time.Second

// checkAll compares all attachments with the kernel, for weft doctor.
func (a *agent) checkAll(ctx context.Context) model.CheckReport {
	ctx, cancel := context.WithTimeout(ctx, checkAllTime)
	defer cancel()
	report, err := a.attacher.CheckAll(ctx)
	if err != nil {
		a.cfg.Log.Warn("some records cannot be checked", "err", err)
	}
	return report
}

// settings is how the agent runs, with its flags, as far as weft doctor goes by it. Passwords and keys are in none of these parts.
func (a *agent) settings() config.Config {
	return config.Config{
		Node: a.cfg.Node, Socket: a.cfg.Socket, StateDir: a.cfg.StateDir, StoreDir: a.cfg.StoreDir, AddressDir: a.cfg.AddressDir,
		Kubernetes: a.cfg.Kubernetes, Network: a.cfg.Network, Flannel: a.cfg.Flannel, Runtime: a.cfg.Runtime, Install: a.cfg.Install,
		Metrics: a.cfg.Metrics,
	}
}
