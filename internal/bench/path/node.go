// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/reconcile"
	"github.com/weft-net/weft/internal/node/tunnel"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// nodeOrder is the configuration of a node of weft's design.
type nodeOrder struct {
	Cluster model.Cluster
	Mesh    nodeMesh
}

type nodeMesh struct {
	Backend    string
	Masquerade []netip.Prefix
}

// podsOrder is what follows when all pods of both nodes exist.
type podsOrder struct {
	Pods     []nodePod
	Guarded  bool
	Policies int
	FastPath []fastpath.Link // none: without the fast path
}

// nodeOutcome reports that an order was executed; MTU is 0 if pods can use the wire's MTU.
type nodeOutcome struct {
	MTU   int
	Error string `json:",omitempty"`
}

// RunNode runs a node of weft's design until EOF on in: a reconciler that makes one pass in the process's own
// namespace, the tunnels of its plan, and then the rules and the fast path of its pods.
func RunNode(ctx context.Context, in io.Reader, out io.Writer) error {
	var o nodeOrder
	d := json.NewDecoder(in)
	if err := d.Decode(&o); err != nil {
		return err
	}
	conn, err := kernel.Dial(nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	quiet := slog.New(slog.DiscardHandler)
	runner := tunnel.New(tunnel.Config{Random: rand.Reader, Log: quiet, Now: time.Now, After: time.After})
	defer runner.Close()
	reconciler := reconcile.New(reconcile.Config{
		Host: conn, Mesh: mesh.Config{Backend: o.Mesh.Backend, Masquerade: o.Mesh.Masquerade}, Runner: runner, Log: quiet,
		Now: time.Now, After: time.After,
	})
	status, err := reconciler.Once(ctx, &o.Cluster)
	result := nodeOutcome{MTU: status.Topology.PodMTU()}
	if err == nil && len(status.Topology.Problems) > 0 {
		err = fmt.Errorf("%s", status.Topology.Problems[0])
	}
	if err != nil {
		result.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return err
	}
	var pods podsOrder
	switch err := d.Decode(&pods); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	if pods.Guarded {
		err = program(ctx, conn, o.Cluster.Self, pods.Pods, pods.Policies)
	}
	if err == nil && len(pods.FastPath) > 0 {
		var path *fastpath.Path
		if path, err = runFastPath(ctx, pods.FastPath); err == nil {
			defer func() { _ = path.Close() }()
		}
	}
	result = nodeOutcome{}
	if err != nil {
		result.Error = err.Error()
	}
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// runFastPath starts the fast path with the agent's settings; the design has no source of changes.
func runFastPath(ctx context.Context, links []fastpath.Link) (*fastpath.Path, error) {
	if err := sysctl("net/netfilter/nf_conntrack_tcp_be_liberal", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	path, err := fastpath.Load(nil)
	if err != nil {
		return nil, err
	}
	left, err := path.Set(ctx, links)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("link %s: %w", left[0].Name, left[0].Why)
	}
	const tcp, udp = 20 * time.Second, 10 * time.Second
	if err == nil {
		err = path.Enable(true, tcp, udp)
	}
	if err != nil {
		return nil, errors.Join(err, path.Close())
	}
	return path, nil
}
