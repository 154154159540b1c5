// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// FileConfig is a file of JSON lines.
type FileConfig struct {
	// Path is absolute. Its directory must exist.
	Path string
	// MaxBytes is the size at which the file is renamed to Path.1, that to Path.2, and so on.
	MaxBytes int64
	// Keep is how many renamed files are kept.
	Keep int
}

// file is the sink of a file. Each flow is one line; a line is never divided, also if the disk is full.
type file struct {
	cfg  FileConfig
	f    *os.File
	size int64
}

// Check names what is wrong with the configuration.
func (c FileConfig) Check() error {
	switch {
	case !filepath.IsAbs(c.Path):
		return model.Errorf(model.CodeInvalidConf, "for example /var/log/weft/flows.json", "path %q is not absolute", c.Path)
	case c.MaxBytes < batchSize:
		return model.OutOfRange("maxBytes", c.MaxBytes, strconv.Itoa(batchSize)+" or more", "104857600")
	case c.Keep < 0 || c.Keep > 100:
		return model.OutOfRange("keep", c.Keep, "0 to 100", "3")
	}
	return nil
}

// NewFile returns a sink that appends to a file, which is opened with the first flow.
func NewFile(c FileConfig) (Sink, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return &file{cfg: c}, nil
}

func (s *file) String() string { return "file " + s.cfg.Path }

// open opens the file at its end. A line that a killed agent has not finished is ended.
func (s *file) open() error {
	f, err := os.OpenFile(s.cfg.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return model.Errorf(model.CodeIO, "create the directory "+filepath.Dir(s.cfg.Path), "file of flows: %w", err)
	}
	if err != nil {
		return fmt.Errorf("file of flows: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size > 0 {
		last := make([]byte, 1)
		if _, err = f.ReadAt(last, size-1); err == nil && last[0] != '\n' {
			size++
			_, err = f.WriteString("\n")
		}
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("file of flows: %w", err)
	}
	s.f, s.size = f, size
	return nil
}

// Write appends a line for each flow.
func (s *file) Write(_ context.Context, batch []flow.Record) (int, error) {
	if err := s.reopen(); err != nil {
		return 0, err
	}
	for i, r := range batch {
		line, err := json.Marshal(r)
		if err != nil {
			return i, fmt.Errorf("flow: %w", err)
		}
		line = append(line, '\n')
		if s.size > 0 && s.size+int64(len(line)) > s.cfg.MaxBytes {
			if err := s.rotate(); err != nil {
				return i, err
			}
		}
		if _, err := io.Copy(s.f, bytes.NewReader(line)); err != nil {
			return i, errors.Join(fmt.Errorf("file of flows: %w", err), s.f.Truncate(s.size))
		}
		s.size += int64(len(line))
	}
	return len(batch), nil
}

// reopen opens the file again if another program has renamed or deleted it, as logrotate does.
func (s *file) reopen() error {
	if s.f != nil {
		is, err := os.Stat(s.cfg.Path)
		if has, failed := s.f.Stat(); err == nil && failed == nil && os.SameFile(is, has) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("file of flows: %w", err)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return s.open()
}

// rotate renames the files, deletes the oldest one, and begins a new one.
func (s *file) rotate() error {
	if err := s.Close(); err != nil {
		return err
	}
	name := func(i int) string {
		if i == 0 {
			return s.cfg.Path
		}
		return s.cfg.Path + "." + strconv.Itoa(i)
	}
	for i := s.cfg.Keep; i > 0; i-- {
		if err := atomicfile.Link(name(i-1), name(i), atomicfile.CrashSafe); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("file of flows: %w", err)
		}
	}
	if err := os.Remove(s.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("file of flows: %w", err)
	}
	return s.open()
}

// Close closes the file.
func (s *file) Close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	s.f = nil
	if err != nil {
		return fmt.Errorf("file of flows: %w", err)
	}
	return nil
}
