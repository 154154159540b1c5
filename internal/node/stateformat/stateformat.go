// SPDX-License-Identifier: Apache-2.0

// Package stateformat records in which formats the files of a state directory are written, so that an agent of an
// earlier version that cannot read them refuses the directory before it has changed anything.
package stateformat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
)

// FileName is the name of the record in a state directory.
const FileName = "format.json"

// Formats are the versions of formats by the names of their files, for example "ledger.db": 1.
type Formats map[string]int

// content is the file.
type content struct {
	// Program is the version of the program that wrote it, for messages.
	Program string  `json:"program"`
	Formats Formats `json:"formats"`
}

// Claim checks that this program, which reads and writes known, can use the state directory, and records its formats.
// It is called before anything of the directory is read or written. A format that is newer than the program's is an
// error, and nothing is changed. A directory without the file is of a version from before it, which is the first format
// of every file. Files that this program does not know keep their entry: it does not touch them.
func Claim(dir, program string, known Formats) error {
	path := filepath.Join(dir, FileName)
	before, err := read(path)
	if err != nil {
		return err
	}
	var newer []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if have := before.Formats[name]; have > known[name] {
			newer = append(newer, fmt.Sprintf("%s has format %d, this program knows %d", name, have, known[name]))
		}
	}
	if len(newer) > 0 {
		return model.Errorf(
			model.CodeIO, fmt.Sprintf(
				"start weft %s again, or drain the node and remove the directory (docs/tasks/upgrade.md)", before.Program),
			"state directory %q was written by weft %s, and is not changed: %s", dir, before.Program,
			strings.Join(newer, "; "))
	}
	now := content{Program: program, Formats: maps.Clone(before.Formats)}
	if now.Formats == nil {
		now.Formats = Formats{}
	}
	maps.Copy(now.Formats, known)
	if now.Program == before.Program && maps.Equal(now.Formats, before.Formats) {
		return nil
	}
	b, err := json.MarshalIndent(now, "", "  ")
	if err == nil {
		err = atomicfile.Write(path, append(b, '\n'), 0o600, atomicfile.Durable)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "choose a --state-dir that can be written", "state directory %q: %w", dir, err)
	}
	return nil
}

// read reads the file; a missing one is empty.
func read(path string) (content, error) {
	var c content
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, model.Errorf(
			model.CodeIO, "remove it if no later version of weft has used the directory", "%s: %w", path, err)
	}
	return c, nil
}
