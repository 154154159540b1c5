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

// Remove takes the configuration and the programs back.
func Remove(ctx context.Context, c Config) ([]Change, error) {
	bin, conf, done, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var changes []Change
	if conf != nil {
		// First: from here on the runtime uses the programs no more.
		if changes, err = conf.withdraw(""); err != nil {
			return changes, err
		}
	}
	entries, err := os.ReadDir(bin.dir)
	if err != nil {
		return changes, trouble(err)
	}
	for _, e := range entries {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		done, err := bin.takeBack(e.Name())
		changes = append(changes, done...)
		if err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// takeBack undoes what Install did with one name.
func (p *place) takeBack(name string) ([]Change, error) {
	if name, ok := strings.CutSuffix(name, original); ok {
		return p.spare(name)
	}
	path := p.path(name)
	who, err := whose(path)
	if err != nil || who != weft {
		return nil, err
	}
	if _, err := os.Lstat(path + original); err == nil {
		if err := p.rename(name+original, name); err != nil {
			return nil, err
		}
		return []Change{{path, Restored, ""}}, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, trouble(err)
	}
	if err := p.remove(name); err != nil {
		return nil, err
	}
	return []Change{{path, Removed, ""}}, nil
}

// spare looks after an original whose name is not, or no longer, weft's.
func (p *place) spare(name string) ([]Change, error) {
	path := p.path(name)
	who, err := whose(path)
	switch {
	case err != nil:
		return nil, trouble(err)
	case who == weft:
		return nil, nil // restored in its turn
	case who == nobody:
		if err := p.rename(name+original, name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil // it was restored
		} else if err != nil {
			return nil, err
		}
		return []Change{{path, Restored, ""}}, nil
	}
	if _, err := os.Lstat(path + original); err != nil {
		return nil, nil // it was restored a moment ago
	}
	if equal, err := same(path, path+original); err == nil && equal {
		return nil, p.remove(name + original)
	}
	return []Change{{path + original, Kept, fmt.Sprintf("somebody has put another %s in its place since", name)}}, nil
}
