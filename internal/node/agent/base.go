// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/weft-net/weft/internal/boot"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/inotify"
	"github.com/weft-net/weft/internal/ipam/blockjournal"
	"github.com/weft-net/weft/internal/ipam/dhcp/exchange"
	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/redirect"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/node/adopted"
	"github.com/weft-net/weft/internal/node/agentlock"
	"github.com/weft-net/weft/internal/node/hostenv"
	"github.com/weft-net/weft/internal/node/migration"
	"github.com/weft-net/weft/internal/node/preimage"
	"github.com/weft-net/weft/internal/node/stateformat"
	"github.com/weft-net/weft/internal/node/tunnelip"
	"github.com/weft-net/weft/internal/node/unrecorded"
)

// base is the agent's exclusive state on the node.
type base struct {
	claims *agentlock.Lock
	host   *kernel.Conn
	ledger *ledger.Ledger
	// settings are those of the node before weft changed them; nil if they cannot be recorded.
	settings *preimage.Settings
	// lost are the interfaces of running pods without a record.
	lost   []unrecorded.Interface
	leases *lease.Manager
	reaper *kernel.Reaper
	// namespaces are the node's and, where it can be opened, the host's; boot is the ID of the host's boot.
	namespaces []*netns.NS
	boot       string
	// events is nil if inotify is not available.
	events *inotify.Instance
	// deletions reports deleted namespaces of pods.
	deletions *netns.Deletions
}

// open creates it; close must be called also after an error.
func (b *base) open(cfg Config) (err error) {
	if b.claims, err = agentlock.Acquire(cfg.StateDir, cfg.Log, cfg.After); err != nil {
		return err
	}
	if err = stateformat.Claim(cfg.StateDir, cfg.Version, formats()); err != nil {
		return err
	}
	if err := errors.Join(hostenv.WritableSysctls(), hostenv.OwnProcesses(cfg.Install.HostRoot)); err != nil {
		cfg.Log.Warn("the container's mounts could not be changed", "err", err)
	}
	if b.host, err = kernel.Dial(nil); err != nil {
		return fmt.Errorf("network namespace of the node: %w", err)
	}
	b.host.Programs = redirect.Joins{}
	if b.boot, err = boot.ID(); err != nil {
		return err
	}
	if b.settings, err = preimage.Open(cfg.StateDir, b.boot); err != nil {
		cfg.Log.Warn("settings of the node that are changed from now on are not recorded", "err", err)
	} else {
		b.host.Changing = b.settings.Keep
	}
	if b.ledger, err = ledger.Open(cfg.StateDir); err != nil {
		return err
	}
	if b.lost, err = unrecorded.Find(context.Background(), b.host, b.ledger); err != nil {
		return fmt.Errorf("interfaces without a record: %w", err)
	}
	if b.namespaces, err = hostenv.Namespaces(); err != nil {
		return err
	}
	b.reaper = kernel.NewReaper(b.host, cfg.Log)
	if b.events, err = inotify.New(); err != nil {
		cfg.Log.Warn("deleted namespaces and queued DELs are found by periodic passes only", "err", err)
	}
	b.deletions = netns.NewDeletions(b.events, cfg.After)
	// The previous agent's DHCP leases are renewed from now on.
	b.leases, err = lease.Open(lease.Config{
		Dir: filepath.Join(cfg.StateDir, "dhcp"), Boot: b.boot, Deletions: b.deletions, Log: cfg.Log,
		Exchange: exchange.Options{
			Now: cfg.Now, Random: rand.Reader,
			Timeout: exchange.Timeout, ResendMax: exchange.ResendMax, ResendTimeout: exchange.ResendTimeout,
		},
	})
	return err
}

// formats are those of the files in the state directory that are not computed again: their loss would change a pod's
// network, duplicate or leak an address, or leave a changed setting of the node.
func formats() stateformat.Formats {
	return stateformat.Formats{
		ledger.FileName: attach.RecordVersion, "blocks": blockjournal.Version, "dhcp": lease.RecordVersion,
		preimage.FileName: preimage.FileVersion, adopted.FileName: adopted.FileVersion,
		tunnelip.FileName: tunnelip.FileVersion, migration.RelayFileName: migration.RelayFileVersion,
	}
}

// alive returns an error if the agent must be restarted: its ledger is stuck. A restart does not help with a full or
// read-only file system, and would interrupt policies and the mesh.
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
	errs = append(errs, b.events.Close())
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
