// SPDX-License-Identifier: Apache-2.0

package path

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/kernel"
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

// nodeOutcome reports that the node's mesh is programmed; MTU is 0 if pods can use the wire's MTU.
type nodeOutcome struct {
	MTU   int
	Error string `json:",omitempty"`
}

// RunNode runs a node of weft's design until EOF on in: a reconciler that makes one pass in the process's own
// namespace, and the tunnels of its plan.
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
	_, err = io.Copy(io.Discard, in)
	return err
}
