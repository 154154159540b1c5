// SPDX-License-Identifier: Apache-2.0

// Package blockjournal reads and writes the file from which a node's engine of blocks continues after a restart.
package blockjournal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
)

const fileName = "blocks.json"

// Version is the format of the journal that this program writes. One of a newer format is rejected.
const Version = 1

// Journal is what an engine restores after a restart.
type Journal struct {
	Version int     `json:"version"`
	Node    string  `json:"node"`
	Blocks  []Block `json:"blocks"`
	// Sticky are the addresses of claims.
	Sticky []Sticky `json:"sticky,omitempty"`
	// Pools are the pools of the blocks, and those of the cluster's network: so that an engine that starts knows
	// reservations and pools also when the datastore does not answer.
	Pools []model.AddressPool `json:"pools,omitempty"`
	// DuplicateNodes are the machine IDs of other hosts that run as this node, for `weft doctor`.
	DuplicateNodes []string `json:"strangers,omitempty"`
}

// Block is a block of the node, or an address that it borrowed of another node's block, its Parent.
type Block struct {
	Pool   string       `json:"pool"`
	CIDR   netip.Prefix `json:"cidr"`
	Parent netip.Prefix `json:"parent"`
	Claim  string       `json:"claim"`
	// State is "owned" or "releasing"; the node allocates only from an owned one.
	State string `json:"stands"`
	// Lent are the addresses that other nodes may allocate.
	Lent []netip.Addr `json:"away,omitempty"`
}

// Sticky is an address that belongs to a claim, by the claim's ID.
type Sticky struct {
	Pool  string     `json:"pool"`
	Addr  netip.Addr `json:"addr"`
	Claim string     `json:"claim"`
}

// Path returns the file in an engine's directory.
func Path(dir string) string { return filepath.Join(dir, fileName) }

// Read reads the journal in an engine's directory; without a file it is empty. One of another node, or of a newer program,
// is an error: its content must not be lost.
func Read(dir, node string) (Journal, error) {
	path := Path(dir)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Journal{}, nil
	}
	if err != nil {
		return Journal{}, model.Errorf(model.CodeIO, "choose a --state-dir that can be read",
			"journal of address blocks: %w", err)
	}
	var j Journal
	if err := json.Unmarshal(b, &j); err != nil {
		return Journal{}, model.Errorf(model.CodeDecode, "move it away: the datastore has this node's blocks",
			"journal of address blocks %s: %w", path, err)
	}
	if j.Version > Version {
		return Journal{}, model.Errorf(model.CodeIO, "use the newer program",
			"journal of address blocks %s: version %d is newer than %d", path, j.Version, Version)
	}
	if j.Node != node {
		return Journal{}, model.Errorf(model.CodeIO, "give this node its old name, or choose another --state-dir",
			"journal of address blocks %s is of node %q, this node is %q", path, j.Node, node)
	}
	return j, nil
}

// Write writes the journal into an engine's directory, durably: a release that has begun must survive a crash of the
// host. It sets the version.
func Write(dir string, j Journal) error {
	j.Version = Version
	text, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(Path(dir), text, 0o600, atomicfile.Durable)
}

// DuplicateNodes returns the IDs of other hosts that the agent of that state directory has seen to claim addresses as its
// node. An agent without blocks has no journal of them: fs.ErrNotExist.
func DuplicateNodes(stateDir string) ([]string, error) {
	b, err := os.ReadFile(Path(filepath.Join(stateDir, "blocks")))
	var j Journal
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	return j.DuplicateNodes, err
}
