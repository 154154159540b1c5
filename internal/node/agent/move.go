// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/move"
	"github.com/weft-net/weft/internal/plan/mesh"
)

// newMover makes what has machines migrate with their addresses; nil where pods are not numbered from pools: there other nodes
// could not find them.
func (a *agent) newMover() *move.Mover {
	if a.blocks == nil || !a.fromPools() || a.facts == nil {
		return nil
	}
	return move.New(move.Config{
		Node: a.cfg.Node, Attachments: a.attacher, Records: a.ledger, Objects: a.objects(), Cluster: a.facts.Cluster,
		Holds: a.blocks.Holds, Host: a.host, Log: a.cfg.Log, Now: a.cfg.Now, After: a.cfg.After,
		RelaysChanged: a.tellMesh, RelayFile: filepath.Join(a.cfg.StateDir, "relays.json"),
	})
}

// relays are the machines that come from other nodes, for the mesh.
func (a *agent) relays() []mesh.Relay {
	var out []mesh.Relay
	for _, r := range a.mover.Relays() {
		out = append(out, mesh.Relay(r))
	}
	return out
}

// machineMoved tells of a machine's attachment: the mover, and who speaks to guests.
func (a *agent) machineMoved(key model.AttachmentKey) {
	a.guests.Changed(key)
	a.bringing()
	a.tellMarked()
	if a.mover != nil {
		a.mover.Moved(key)
	}
}
