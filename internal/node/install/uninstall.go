// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
)

// List lists what Remove would remove or replace, without a lock. Directories that do not exist have nothing.
func List(c Config) ([]string, error) {
	var out []string
	conf := &place{dir: c.ConfDir}
	if exists(c.ConfDir) {
		names, content, err := conf.read()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if source, mine := derivedFrom(content[name]); mine {
				out = append(out, fmt.Sprintf("file %s, derived from %s", conf.path(name), source))
			}
		}
	}
	if !exists(c.BinDir) {
		return out, nil
	}
	entries, err := os.ReadDir(c.BinDir)
	if err != nil {
		return nil, withHint(err)
	}
	for _, e := range entries {
		path := filepath.Join(c.BinDir, e.Name())
		name, kept := strings.CutSuffix(e.Name(), original)
		owned, err := ownerOf(filepath.Join(c.BinDir, name))
		if err != nil {
			return nil, withHint(err)
		}
		switch {
		case kept:
			out = append(out, fmt.Sprintf("file %s, again %s", path, name))
		case owned == weft && !slices.ContainsFunc(entries, func(o fs.DirEntry) bool { return o.Name() == name+original }):
			out = append(out, "file "+path)
		}
	}
	return out, nil
}

// RemoveAll is Remove where directories may be missing.
func RemoveAll(ctx context.Context, c Config) error {
	if !exists(c.ConfDir) {
		c.ConfDir = ""
	}
	if !exists(c.BinDir) {
		if c.ConfDir == "" {
			return nil
		}
		conf, err := open(ctx, c.ConfDir, confHint)
		if err != nil {
			return err
		}
		defer conf.close()
		_, err = conf.withdraw("")
		return err
	}
	_, err := Remove(ctx, c)
	return err
}

// Asked lists the configurations of weft's in a directory by which a runtime asks for the state of the network.
func Asked(confDir string) ([]string, error) {
	if !exists(confDir) {
		return nil, nil
	}
	lists, err := (&place{dir: confDir}).asked()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(lists)), nil
}

// StopAsking takes the versions of CNI with STATUS from weft's configurations. Without an agent STATUS fails; the runtime
// would report the node as not ready, which evicts its pods, while it stops them with these configurations.
func StopAsking(ctx context.Context, confDir string) error {
	p, err := open(ctx, confDir, confHint)
	if err != nil {
		return err
	}
	defer p.close()
	lists, err := p.asked()
	if err != nil {
		return err
	}
	for name, list := range lists {
		delete(list, versionsKey)
		b, err := json.MarshalIndent(list, "", "  ")
		if err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
		if err := p.write(name, bytes.NewReader(append(b, '\n')), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// versionsKey lists the versions of a configuration besides its cniVersion, which has no STATUS.
const versionsKey = "cniVersions"

// asked returns the configurations of weft's that have versions with STATUS, by their names.
func (p *place) asked() (map[string]map[string]json.RawMessage, error) {
	names, content, err := p.read()
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]json.RawMessage{}
	for _, name := range names {
		if _, mine := derivedFrom(content[name]); !mine {
			continue
		}
		var list map[string]json.RawMessage
		if err := json.Unmarshal(content[name], &list); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", name, err)
		}
		if _, has := list[versionsKey]; has {
			out[name] = list
		}
	}
	return out, nil
}

// OtherNetwork returns the file of the network that a runtime would use without weft, empty if there is none: one whose
// plugins are weft's own would not run.
func OtherNetwork(c Config) (string, error) {
	if !exists(c.ConfDir) {
		return "", nil
	}
	conf := &place{dir: c.ConfDir}
	names, content, err := conf.read()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if _, mine := derivedFrom(content[name]); mine {
			continue
		}
		_, err := derive(conf.path(name), content[name], Config{})
		if err != nil && !errors.Is(err, errMultus) {
			continue
		}
		if runs, err := c.runsWithout(conf.path(name), content[name]); runs || err != nil {
			return name, err
		}
	}
	return "", nil
}

// OwnFlannel returns the path of flannel's configuration, and the name of its network, if Original wrote it on a node that
// never had flannel: nothing but weft runs its plugins. They are empty otherwise.
func OwnFlannel(c Config) (path, network string, err error) {
	path = filepath.Join(c.ConfDir, flannelName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", withHint(err)
	}
	if runs, err := c.runsWithout(path, text); runs || err != nil {
		return "", "", err
	}
	list, err := parseNetwork(path, text)
	return path, list.Name, err
}

func parseNetwork(path string, text []byte) (model.Network, error) {
	list, err := confdir.Parse(text, filepath.Dir(path))
	if err != nil {
		return model.Network{}, err
	}
	return cni.ParseNetwork(list.Bytes)
}

// runsWithout reports whether the programs of a configuration are there without weft.
func (c Config) runsWithout(path string, text []byte) (bool, error) {
	network, err := parseNetwork(path, text)
	if err != nil {
		return false, err
	}
	programs := []string{loopback}
	for _, p := range network.Plugins {
		if programs = append(programs, p.Type); p.Type == "flannel" {
			programs = append(programs, "bridge", "host-local") // its delegates
		}
	}
	for _, name := range programs {
		program := filepath.Join(c.BinDir, name)
		owned, err := ownerOf(program)
		if err != nil {
			return false, withHint(err)
		}
		if owned != foreign && !exists(program+original) {
			return false, nil
		}
	}
	return true, nil
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return dir != "" && err == nil
}
