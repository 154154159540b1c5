// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// OtherNetwork returns the file of the network that a runtime would use without weft, empty if there is none.
func OtherNetwork(confDir string) (string, error) {
	if !exists(confDir) {
		return "", nil
	}
	conf := &place{dir: confDir}
	names, content, err := conf.read()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if _, mine := derivedFrom(content[name]); mine {
			continue
		}
		if _, err := derive(conf.path(name), content[name], Config{}); err == nil || errors.Is(err, errMultus) {
			return name, nil
		}
	}
	return "", nil
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return dir != "" && err == nil
}
