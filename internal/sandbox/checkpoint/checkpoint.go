// SPDX-License-Identifier: Apache-2.0

// Package checkpoint keeps what a runtime must still know of a sandbox when everything else about it is lost: enough to
// give back its network. A checkpoint is written before the sandbox starts and goes last.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/sandbox/process"
)

const schema = 1

// PortMapping is a port of the node that leads into the pod. Its JSON is the portMappings capability of CNI.
type PortMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// Checkpoint is the record of one sandbox.
type Checkpoint struct {
	Schema       int           `json:"schema"`
	ID           string        `json:"id"`
	Name         string        `json:"name"`
	Namespace    string        `json:"namespace"`
	UID          string        `json:"uid"`
	Attempt      int           `json:"attempt"`
	HostNetwork  bool          `json:"hostNetwork"`
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	Netns        string        `json:"netns,omitempty"`
	Created      time.Time     `json:"created"`
}

type file struct {
	Checksum string          `json:"checksum"` // SHA-256 of data's bytes, in hex
	Data     json.RawMessage `json:"data"`
}

// Store is a directory of checkpoints, one file each.
type Store struct{ dir string }

// Open makes the directory when it is not there.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return &Store{dir: dir}, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// Write puts a checkpoint into its place in one step.
func (s *Store) Write(c Checkpoint) error {
	c.Schema = schema
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.ID, err)
	}
	b, err := json.Marshal(file{Checksum: sum(data), Data: data})
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.ID, err)
	}
	if err := process.WriteFile(s.path(c.ID), append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("checkpoint %s: %w", c.ID, err)
	}
	return nil
}

// Read reads one checkpoint; the error wraps os.ErrNotExist when there is none.
func (s *Store) Read(id string) (Checkpoint, error) {
	var c Checkpoint
	b, err := os.ReadFile(s.path(id))
	if err != nil {
		return c, fmt.Errorf("checkpoint %s: %w", id, err)
	}
	c, err = parse(b)
	if err == nil && c.ID != id {
		err = fmt.Errorf("it is about sandbox %q", c.ID)
	}
	if err != nil {
		return c, fmt.Errorf("checkpoint %s: %w", id, err)
	}
	return c, nil
}

func parse(b []byte) (Checkpoint, error) {
	var f file
	var c Checkpoint
	if err := json.Unmarshal(b, &f); err != nil {
		return c, err
	}
	if have := sum(f.Data); have != f.Checksum {
		return c, fmt.Errorf("checksum %s, want %q", have, f.Checksum)
	}
	if err := json.Unmarshal(f.Data, &c); err != nil {
		return c, err
	}
	if c.Schema > schema {
		return c, fmt.Errorf("schema %d is newer than %d", c.Schema, schema)
	}
	return c, nil
}

// Broken is a checkpoint that cannot be read.
type Broken struct {
	ID  string
	Err error
}

// List reads all checkpoints; those that cannot be read stand in broken. What a killed writer left is removed.
func (s *Store) List() (good []Checkpoint, broken []Broken, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("checkpoints: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(id, ".") {
			_ = os.Remove(filepath.Join(s.dir, e.Name()))
			continue
		}
		c, err := s.Read(id)
		if err != nil {
			broken = append(broken, Broken{ID: id, Err: err})
			continue
		}
		good = append(good, c)
	}
	return good, broken, nil
}

// Remove takes a checkpoint away; one that is not there is no error.
func (s *Store) Remove(id string) error {
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("checkpoint %s: %w", id, err)
	}
	return nil
}

func sum(data []byte) string {
	h := sha256.Sum256(bytes.TrimSpace(data))
	return hex.EncodeToString(h[:])
}
