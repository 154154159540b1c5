// SPDX-License-Identifier: Apache-2.0

// Package checkpoint stores the data that a runtime needs to release a sandbox's network when everything else about the
// sandbox is lost, as dockershim did. A checkpoint is written before the sandbox starts and removed last.
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

// PortMapping maps a port of the node to the pod. Its JSON is the portMappings capability of CNI.
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
	Checksum string          `json:"checksum"` // SHA-256 of data, in hex
	Data     json.RawMessage `json:"data"`
}

// Store is a directory of checkpoints, one file for each sandbox.
type Store struct{ dir string }

// Open opens a store and creates its directory if necessary.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	return &Store{dir: dir}, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id+".json") }

// Write writes a checkpoint atomically.
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

// Read reads one checkpoint; the error wraps os.ErrNotExist if it does not exist.
func (s *Store) Read(id string) (Checkpoint, error) {
	var c Checkpoint
	b, err := os.ReadFile(s.path(id))
	if err != nil {
		return c, fmt.Errorf("checkpoint %s: %w", id, err)
	}
	c, err = parse(b)
	if err == nil && c.ID != id {
		err = fmt.Errorf("the file contains sandbox %q", c.ID)
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

// Corrupt is a checkpoint that cannot be read.
type Corrupt struct {
	ID  string
	Err error
}

// List reads all checkpoints. It removes temporary files of a killed writer.
func (s *Store) List() (valid []Checkpoint, corrupt []Corrupt, err error) {
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
			corrupt = append(corrupt, Corrupt{ID: id, Err: err})
			continue
		}
		valid = append(valid, c)
	}
	return valid, corrupt, nil
}

// Remove removes a checkpoint, if it exists.
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
