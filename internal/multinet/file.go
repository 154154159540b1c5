// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// maxFile bounds a configuration's file.
const maxFile = 4 << 20 // bytes

// namedFile returns the configuration of that name in a directory: of the files .conf, .conflist and .json, sorted, the
// first that has the name; any that is the first when name is empty.
func namedFile(dir, name string) (json.RawMessage, error) {
	files, err := confFiles(dir, ".conf", ".conflist", ".json")
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "write it there, or put it into the object's spec.config",
			"directory %s: %w", dir, plain(err))
	}
	var bad []error
	for _, path := range files {
		raw, err := readFile(path)
		var head struct {
			Name string `json:"name"`
		}
		if err == nil {
			err = cni.Decode(path, raw, &head)
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		if name == "" || head.Name == name {
			return chained(path, raw)
		}
	}
	if len(bad) > 0 {
		return nil, model.Errorf(model.CodeInvalidConf, "",
			"directory %s: no configuration with the name %q, and what cannot be read: %w", dir, name, errors.Join(bad...))
	}
	if name == "" {
		return nil, model.Errorf(model.CodeInvalidConf, "", "directory %s holds no configuration", dir)
	}
	return nil, model.Errorf(model.CodeInvalidConf, "write it there, or put it into the object's spec.config",
		"directory %s holds no configuration with the name %q", dir, name)
}

// pathFile returns the configuration at a path: a file, or the first of a directory.
func pathFile(path string) (json.RawMessage, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "", "file %s: %w", path, plain(err))
	}
	if st.IsDir() {
		return namedFile(path, "")
	}
	raw, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return chained(path, raw)
}

// chained adds to a list the plugins in the files of the directory with the list's name, next to it.
func chained(path string, raw json.RawMessage) (json.RawMessage, error) {
	var list struct {
		Name    string            `json:"name"`
		Type    string            `json:"type"`
		Inlined any               `json:"loadOnlyInlinedPlugins"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := cni.Decode(path, raw, &list); err != nil {
		return nil, err
	}
	if list.Type != "" || list.Inlined == true || list.Inlined == "true" || cni.CheckWord(list.Name) != nil {
		return raw, nil
	}
	more, err := chain(filepath.Dir(path), list.Name)
	if err != nil || len(more) == 0 {
		return raw, err
	}
	var keys map[string]json.RawMessage
	if err := cni.Decode(path, raw, &keys); err != nil {
		return nil, err
	}
	if keys["plugins"], err = json.Marshal(append(list.Plugins, more...)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return json.Marshal(keys)
}

// chain returns the plugins in the directory of that name, in the order of their files.
func chain(dir, name string) ([]json.RawMessage, error) {
	files, err := confFiles(filepath.Join(dir, name), ".conf")
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, model.Errorf(model.CodeIO, "", "directory %s: %w", filepath.Join(dir, name), plain(err))
	}
	var plugins []json.RawMessage
	for _, path := range files {
		raw, err := readFile(path)
		if err != nil {
			return nil, err
		}
		var object map[string]json.RawMessage
		if err := cni.Decode(path, raw, &object); err != nil {
			return nil, err
		}
		plugins = append(plugins, raw)
	}
	return plugins, nil
}

// confFiles returns the files of a directory with one of the extensions, sorted.
func confFiles(dir string, endings ...string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(endings, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

func readFile(path string) (json.RawMessage, error) {
	st, err := os.Stat(path)
	if err == nil && (!st.Mode().IsRegular() || st.Size() > maxFile) {
		return nil, model.Errorf(model.CodeInvalidConf, "",
			"file %s is no configuration: no regular file of at most %d bytes", path, maxFile)
	}
	if err == nil {
		var raw []byte
		if raw, err = os.ReadFile(path); err == nil {
			return raw, nil
		}
	}
	return nil, model.Errorf(model.CodeIO, "", "file %s: %w", path, plain(err))
}

// plain removes the path from a file error whose message has it already.
func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
