// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/lab/fabric"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plural"
)

// speakerSocket returns the path of the socket of weft-bgp on a node or router.
func (d Dir) speakerSocket(node string) string { return d.Node(node, "agent", "bgp.sock") }

// startFabric creates the routers of the fabric, if the lab has one, and starts weft-bgp on them and on the nodes.
func (u Up) startFabric(ctx context.Context, l layout.Layout, died context.CancelCauseFunc) error {
	routers := fabric.Routers(l)
	if len(routers) == 0 {
		return nil
	}
	u.Logf("starting %s", plural.Count(len(routers), "router", "routers"))
	if err := fabric.Create(ctx, l, u.Dir.NS); err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, r := range routers {
		group.Go(func() error { return u.startRouter(gctx, r, died) })
	}
	for _, n := range l.Nodes {
		group.Go(func() error { return u.startSpeaker(gctx, n.Name, died) })
	}
	return group.Wait()
}

// startRouter writes a router's configuration, and starts its processes. Its agent has a store of its own.
func (u Up) startRouter(ctx context.Context, r fabric.Router, died context.CancelCauseFunc) error {
	at := func(elem ...string) string { return u.Dir.Node(r.Name, elem...) }
	if err := os.MkdirAll(at("store"), 0o755); err != nil {
		return u.Dir.unwritable(err)
	}
	for path, text := range map[string]string{
		at("store", "router.yaml"): r.Manifests(), u.Dir.agentConfig(r.Name): u.agentFile(r.Name),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return u.Dir.unwritable(err)
		}
	}
	if err := u.startSpeaker(ctx, r.Name, died); err != nil {
		return err
	}
	argv := []string{
		u.Agent, "agent", "--node", r.Name, "--config", u.Dir.agentConfig(r.Name), "--socket", u.Dir.AgentSocket(r.Name),
		"--state-dir", at("agent"), "--store-dir", at("store"), "--address-dir", at("ipam"), "--encapsulation", u.backend(),
		"--metrics-address", metricsAddress,
	}
	return u.startIn(ctx, r.Name, roleAgent, u.Dir.AgentSocket(r.Name), argv, died)
}

// startSpeaker starts weft-bgp on a node or router.
func (u Up) startSpeaker(ctx context.Context, node string, died context.CancelCauseFunc) error {
	socket := u.Dir.speakerSocket(node)
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return u.Dir.unwritable(err)
	}
	return u.startIn(ctx, node, roleSpeaker, socket, []string{u.Speaker, "-socket", socket}, died)
}

// startIn starts a process in a namespace, and waits until it listens at a socket.
func (u Up) startIn(ctx context.Context, node, role, socket string, argv []string, died context.CancelCauseFunc) error {
	ns, err := netns.Open(u.Dir.NS(node))
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := u.startProcess(ns, node, role, argv, died); err != nil {
		return fmt.Errorf("%s: %s: %w", node, role, err)
	}
	if err := awaitListener(ctx, socket); err != nil {
		return fmt.Errorf("%s: %s: %w", node, role, err)
	}
	return nil
}

func (d Dir) routerStatus(r fabric.Router) RouterStatus {
	return RouterStatus{
		Name: r.Name, ASN: r.ASN, Agent: processState(d, r.Name, roleAgent), Speaker: processState(d, r.Name, roleSpeaker),
		Netns: d.NS(r.Name),
	}
}
