// SPDX-License-Identifier: Apache-2.0

// Package cniconf writes the container runtime's network configuration: weft's own, that of Multus, or flannel's,
// depending on the agent's mode.
package cniconf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/facts"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/node/podnetwork"
	"github.com/weft-net/weft/internal/node/readiness"
)

// Component is the package's name in the node's readiness.
const Component = "network configuration"

// retryPause is the pause before a configuration that could not be written is retried, checkPeriod how often it is
// checked without an event: another program may have removed it.
const retryPause, checkPeriod = time.Second, 30 * time.Second

// syncWait is how long the cluster's first snapshot may take before that is a warning.
const syncWait = 3 * time.Second

// prefixWait is how long a node may have no podCIDR before that is a warning: the controller manager assigns one
// within seconds.
const prefixWait = time.Minute

// Network is weft's own pod network on this node.
type Network interface {
	Own() (install.Own, error)
}

// Config configures a Writer.
type Config struct {
	Socket  string
	Network config.Network
	Install config.Install
	Multus  config.Multus
	Flannel config.Flannel
	// Facts is nil without a cluster.
	Facts *facts.Facts
	Own   Network
	// PodMTU returns the largest MTU that fits into the mesh, 0 if there is no limit.
	PodMTU    func(ctx context.Context) (int, error)
	Readiness *readiness.Readiness
	Log       *slog.Logger
	Now       func() time.Time
	After     func(time.Duration) <-chan time.Time
}

// Writer writes the configuration.
type Writer struct {
	cfg Config
	// waiting is since when the node has no podCIDR and no pool; warned reports that this was logged.
	waiting time.Time
	warned  bool
}

// New returns a Writer.
func New(cfg Config) *Writer { return &Writer{cfg: cfg} }

// Run keeps the runtime's configuration until ctx ends. It starts when the CNI socket is served. The configuration
// stays after Run: without it, or with another vendor's, pods would start without their network while the agent is
// down.
func (w *Writer) Run(ctx context.Context) error {
	c := install.Config{ConfDir: w.cfg.Install.ConfDir}
	if err := os.MkdirAll(c.ConfDir, 0o755); err != nil { // a runtime that was just installed has none
		w.note(nil, fmt.Errorf("install.confDir: %w", err))
	}
	if w.cfg.Socket != wire.DefaultSocket {
		c.Socket = w.cfg.Socket
	}
	if w.cfg.Network.Mode == config.ModeMultus {
		m := w.cfg.Multus
		c.Multus = &install.Multus{
			NamespaceIsolation: m.NamespaceIsolation, GlobalNamespaces: m.GlobalNamespaces, SystemNamespaces: m.SystemNamespaces,
			MultusNamespace: m.Namespace, DefaultNetworks: m.DefaultNetworks, ReadinessIndicatorFile: m.ReadinessIndicatorFile,
			NetworkDir: m.NetworkDir, LogFile: m.LogFile, LogLevel: m.LogLevel,
		}
		return install.Follow(ctx, c, w.note)
	}
	if w.cfg.Network.Mode == config.ModePolicy {
		return install.Follow(ctx, c, w.note)
	}
	if w.cfg.Network.Mode == config.ModeFlannel {
		return w.keepFlannel(ctx, c)
	}
	var changed <-chan struct{}
	if w.cfg.Facts != nil {
		var unsubscribe func()
		changed, unsubscribe = w.cfg.Facts.Subscribe()
		defer unsubscribe()
		select { // a snapshot that is not complete yet is no error
		case <-ctx.Done():
		case <-w.cfg.Facts.Synced():
		case <-w.cfg.After(syncWait):
		}
	}
	for {
		wait := checkPeriod
		var changes []install.Change
		own, err := w.cfg.Own.Own()
		if err == nil && own.MTU == 0 {
			own.MTU, err = w.cfg.PodMTU(ctx)
		}
		if err == nil {
			changes, err = install.Cluster(ctx, c, own)
		}
		w.note(changes, err)
		if err != nil {
			wait = retryPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-w.cfg.After(wait):
		}
	}
}

// note logs the result of a pass and sets the component's readiness.
func (w *Writer) note(changes []install.Change, err error) {
	for _, c := range changes {
		if c.Action != install.Unchanged {
			w.cfg.Log.Info("agent changed a network configuration file", "path", c.Path, "action", c.Action, "detail", c.Detail)
		}
	}
	changed := w.cfg.Readiness.Set(Component, err)
	switch {
	case !errors.Is(err, podnetwork.ErrNoPrefix) && !errors.Is(err, podnetwork.ErrNoPools):
		w.waiting = time.Time{}
		if changed && err != nil {
			w.cfg.Log.Error("node's network configuration cannot be used", "err", err)
		}
	case w.waiting.IsZero(): // usually the controller manager is not running yet
		w.waiting = w.cfg.Now()
		msg := "agent is waiting for the node's prefix"
		if errors.Is(err, podnetwork.ErrNoPools) {
			msg = "agent is waiting for a pool of addresses"
		}
		w.cfg.Log.Info(msg, "err", err)
	case !w.warned && w.cfg.Now().Sub(w.waiting) >= prefixWait:
		w.warned = true
		w.cfg.Log.Warn("node has no addresses for pods, and pods cannot start",
			"since", w.waiting.Format(time.RFC3339), "err", err)
	}
	w.warned = w.warned && !w.waiting.IsZero()
}

// keepFlannel keeps flannel's file and weft's version of it in the runtime's directory.
func (w *Writer) keepFlannel(ctx context.Context, c install.Config) error {
	parts, ctx := errgroup.WithContext(ctx)
	original := func() {
		if err := install.Original(ctx, c, w.cfg.Flannel.CNIConf); err != nil && ctx.Err() == nil {
			w.cfg.Log.Error("agent could not write flannel.cniConf", "path", w.cfg.Flannel.CNIConf, "err", err)
		}
	}
	original() // so that there is one to follow
	parts.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-w.cfg.After(checkPeriod): // a ConfigMap's file changes a minute or so after it
				original()
			}
		}
	})
	parts.Go(func() error { return install.Follow(ctx, c, w.note) })
	return parts.Wait()
}
