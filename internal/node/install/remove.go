// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Remove removes the configuration and the programs.
func Remove(ctx context.Context, c Config) ([]Change, error) {
	bin, conf, done, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var changes []Change
	if conf != nil {
		// First, so that the runtime does not use the programs any more.
		if changes, err = conf.withdraw(""); err != nil {
			return changes, err
		}
	}
	entries, err := os.ReadDir(bin.dir)
	if err != nil {
		return changes, withHint(err)
	}
	for _, e := range entries {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		done, err := bin.restore(e.Name())
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// restore undoes what Install did with one name.
func (p *place) restore(name string) ([]Change, error) {
	if name, ok := strings.CutSuffix(name, original); ok {
		return p.originalOf(name)
	}
	path := p.path(name)
	owned, err := ownerOf(path)
	if err != nil || owned != weft {
		return nil, err
	}
	if _, err := os.Lstat(path + original); err == nil {
		if err := p.rename(name+original, name); err != nil {
			return nil, err
		}
		return []Change{{path, Restored, ""}}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(err)
	}
	if err := p.remove(name); err != nil {
		return nil, err
	}
	return []Change{{path, Removed, ""}}, nil
}

// originalOf handles an original whose name is not, or no longer, weft's.
func (p *place) originalOf(name string) ([]Change, error) {
	path := p.path(name)
	owned, err := ownerOf(path)
	switch {
	case err != nil:
		return nil, withHint(err)
	case owned == weft:
		return nil, nil // restored with its name
	case owned == missing:
		if err := p.rename(name+original, name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil // already restored
		} else if err != nil {
			return nil, err
		}
		return []Change{{path, Restored, ""}}, nil
	}
	if _, err := os.Lstat(path + original); err != nil {
		return nil, nil // restored meanwhile
	}
	if equal, err := same(path, path+original); err == nil && equal {
		return nil, p.remove(name + original)
	}
	return []Change{{path + original, Kept, fmt.Sprintf("another program has replaced %s since", name)}}, nil
}
