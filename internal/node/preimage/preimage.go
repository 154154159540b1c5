// SPDX-License-Identifier: Apache-2.0

// Package preimage records the node's settings before weft changes them for the first time in a boot, so that a node that
// weft leaves gets them back.
package preimage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
)

// FileName is the name of the record in an agent's state directory, and FileVersion its format.
const (
	FileName    = "settings.json"
	FileVersion = 1
)

// file is the record. The settings of an earlier boot are gone.
type file struct {
	Boot     string            `json:"boot"`
	Settings map[string]string `json:"settings"`
}

// Settings is the record of a state directory.
type Settings struct {
	path string
	mu   sync.Mutex
	file file
}

// Open reads the record, which is empty if there is none of this boot. A record that cannot be read is an error: to begin
// a new one would take weft's own values for the previous ones.
func Open(stateDir, boot string) (*Settings, error) {
	s := &Settings{path: filepath.Join(stateDir, FileName), file: file{Boot: boot, Settings: map[string]string{}}}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	var have file
	if err == nil {
		err = json.Unmarshal(b, &have)
	}
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "remove it; then the settings that weft has changed are not restored",
			"previous settings of the node: %s: %w", s.path, err)
	}
	if have.Boot == boot && have.Settings != nil {
		s.file = have
	}
	return s, nil
}

// Keep records the value of a setting that is about to be changed, unless an earlier one is recorded.
func (s *Settings) Keep(name, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, kept := s.file.Settings[name]; kept {
		return nil
	}
	s.file.Settings[name] = value
	if err := s.write(); err != nil {
		delete(s.file.Settings, name)
		return err
	}
	return nil
}

func (s *Settings) write() error {
	b, err := json.Marshal(s.file)
	if err == nil {
		err = atomicfile.Write(s.path, append(b, '\n'), 0o600, atomicfile.CrashSafe)
	}
	if err != nil {
		return fmt.Errorf("previous settings of the node: %w", err)
	}
	return nil
}

// Kept returns the recorded value of a setting.
func (s *Settings) Kept(name string) (value string, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, kept = s.file.Settings[name]
	return value, kept
}

// Forget removes a setting from the record, which the caller has restored.
func (s *Settings) Forget(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, kept := s.file.Settings[name]
	if !kept {
		return nil
	}
	delete(s.file.Settings, name)
	if err := s.write(); err != nil {
		s.file.Settings[name] = value
		return err
	}
	return nil
}

// All returns the recorded settings by their names, as net/ipv4/ip_forward.
func (s *Settings) All() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string, len(s.file.Settings))
	for name, value := range s.file.Settings {
		out[name] = value
	}
	return out
}
