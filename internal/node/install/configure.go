// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// errNoNetwork reports a configuration directory without a network from which the agent's conflist can be derived.
var errNoNetwork = errors.New("no network configuration")

// read returns the configurations of a directory in the order in which a runtime reads them. An unreadable file is nil.
func (p *place) read() (names []string, content map[string][]byte, err error) {
	entries, err := os.ReadDir(p.dir) // sorted
	if err != nil {
		return nil, nil, withHint(err)
	}
	content = map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		b, err := os.ReadFile(p.path(e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile, or a dangling link
		}
		names = append(names, e.Name())
		if err == nil {
			content[e.Name()] = b
		}
	}
	return names, content, nil
}

// configure derives the agent's conflist from the directory's first valid network, or updates it. Invalid files are
// skipped, as runtimes do; but if the source of the existing conflist becomes invalid, the conflist stays.
func configure(p *place, c Config) ([]Change, error) {
	names, content, err := p.read()
	if err != nil {
		return nil, err
	}
	source := current(content)
	var bad []string
	for _, name := range names {
		if _, mine := derivedFrom(content[name]); mine {
			continue
		}
		conflist, err := derive(p.path(name), content[name], c)
		switch {
		case errors.Is(err, errAgent):
			changes, err := p.withdraw("")
			return append(changes, Change{p.path(name), Unchanged, errAgent.Error()}), err
		case errors.Is(err, errLoopback), errors.Is(err, errMultus):
			continue
		case err != nil && name == source:
			return nil, model.Errorf(model.CodeInvalidConf, "correct the file; weft keeps the conflist of its last valid version",
				"configuration %s: %w", p.path(name), err)
		case err != nil:
			bad = append(bad, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		return p.writeConflist(name, conflist, c.Multus != nil)
	}
	detail := ""
	if len(bad) > 0 {
		detail = ": " + strings.Join(bad, "; ")
	}
	return nil, model.Errorf(
		model.CodeInvalidConf, "the agent's conflist is derived from an existing network; --watch waits for one",
		"directory %s: %w%s", p.dir, errNoNetwork, detail)
}

// current returns the file from which the existing conflist was derived.
func current(content map[string][]byte) string {
	for _, b := range content {
		if source, ok := derivedFrom(b); ok {
			return source
		}
	}
	return ""
}

// writeConflist writes the conflist of a file so that it sorts before the file, and removes any other conflist of the
// agent.
func (p *place) writeConflist(source string, conflist []byte, multus bool) ([]Change, error) {
	name, err := nameBefore(source, multus)
	if err != nil {
		return nil, err
	}
	action := Unchanged
	have, err := os.ReadFile(p.path(name))
	if err == nil {
		if _, mine := derivedFrom(have); !mine {
			return nil, model.Errorf(model.CodeInvalidConf, "give that file another name",
				"configuration %s: not weft's, and nothing was changed",
				p.path(name))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(err)
	}
	if conflist, err = withChained(conflist, have); err != nil {
		return nil, err
	}
	if !bytes.Equal(have, conflist) {
		action = Installed
		info, err := os.Stat(p.path(source))
		if err != nil {
			return nil, withHint(err)
		}
		if err := p.write(name, bytes.NewReader(conflist), info.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	changes := []Change{{p.path(name), action, "derived from " + source}}
	more, err := p.withdraw(name)
	return append(changes, more...), err
}

// withdraw removes the forms that weft has derived, except one.
func (p *place) withdraw(but string) ([]Change, error) {
	names, content, err := p.read()
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, name := range names {
		if source, mine := derivedFrom(content[name]); !mine || name == but {
			continue
		} else if err := p.remove(name); err != nil {
			return changes, err
		} else {
			changes = append(changes, Change{p.path(name), Removed, "was derived from " + source})
		}
	}
	return changes, nil
}
