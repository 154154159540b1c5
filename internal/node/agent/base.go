// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/exclusive"
	"github.com/weft-net/weft/internal/node/hostenv"
)

// base is what an agent has to itself on the node.
type base struct {
	claims *exclusive.Claims
	host   *kernel.Conn
	ledger *ledger.Ledger
	leases *lease.Keeper
	reaper *kernel.Reaper
	// namespaces are the node's and, where it can be seen, the machine's; boot names the machine's boot.
	namespaces []*netns.NS
	boot       string
}

// open makes it; what was made is closed by close, also after an error.
func (b *base) open(cfg Config) (err error) {
	if b.claims, err = exclusive.Claim(cfg.StateDir, cfg.Log, cfg.After); err != nil {
		return err
	}
	if err := errors.Join(hostenv.WritableSysctls(), hostenv.OwnProcesses(cfg.Install.HostRoot)); err != nil {
		cfg.Log.Warn("container", "err", err)
	}
	if b.host, err = kernel.Dial(nil); err != nil {
		return fmt.Errorf("network namespace of the node: %w", err)
	}
	if b.ledger, err = ledger.Open(cfg.StateDir); err != nil {
		return err
	}
	if b.boot, err = boot.ID(); err != nil {
		return err
	}
	if b.namespaces, err = hostenv.Namespaces(); err != nil {
		return err
	}
	b.reaper = kernel.NewReaper(b.host, cfg.Log)
	// The DHCP leases that an agent before kept are kept on.
	b.leases, err = lease.Open(lease.Config{
		Dir: filepath.Join(cfg.StateDir, "dhcp"), Boot: b.boot, Log: cfg.Log,
		World: exchange.World{
			Now: cfg.Now, Random: rand.Reader,
			Timeout: exchange.Timeout, ResendMax: exchange.ResendMax, ResendTimeout: exchange.ResendTimeout,
		},
	})
	return err
}

// alive is an error when the agent must be started again: its ledger is stuck. A full or read-only file system is not
// helped by that, and policies and the mesh go on.
func (b *base) alive() error {
	if err := b.ledger.Health(); errors.Is(err, ledger.ErrStuck) {
		return err
	}
	return nil
}

func (b *base) close() error {
	var errs []error
	for _, ns := range b.namespaces {
		errs = append(errs, ns.Close())
	}
	if b.leases != nil {
		errs = append(errs, b.leases.Close())
	}
	if b.ledger != nil {
		errs = append(errs, b.ledger.Close())
	}
	if b.host != nil {
		errs = append(errs, b.host.Close())
	}
	return errors.Join(append(errs, b.claims.Close())...)
}
