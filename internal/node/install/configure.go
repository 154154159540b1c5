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

// errNoNetwork tells that a configuration directory has no network that an agent's form can be derived of.
var errNoNetwork = errors.New("no network configuration")

// read gives the configurations of a directory as a runtime reads them: by name, in order. What cannot be read is nil.
func (p *place) read() (names []string, content map[string][]byte, err error) {
	entries, err := os.ReadDir(p.dir) // sorted
	if err != nil {
		return nil, nil, trouble(err)
	}
	content = map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		b, err := os.ReadFile(p.path(e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile, or a link to nothing
		}
		names = append(names, e.Name())
		if err == nil {
			content[e.Name()] = b
		}
	}
	return names, content, nil
}

// configure writes the agent's form of the first good network of the directory, or brings it up to date. Files that are
// no good network it passes over, as runtimes do; but while the network that it derived the form of is unreadable, the
// form stays.
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
		form, err := derive(p.path(name), content[name], c)
		switch {
		case errors.Is(err, errAgent):
			changes, err := p.withdraw("")
			return append(changes, Change{p.path(name), Unchanged, errAgent.Error()}), err
		case errors.Is(err, errLoopback), errors.Is(err, errMultus):
			continue
		case err != nil && name == source:
			return nil, model.Faultf(model.CodeInvalidConf, "put it right; weft's form of what it was stays as it is",
				"configuration %s: %w", p.path(name), err)
		case err != nil:
			bad = append(bad, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		return p.replace(name, form, c.Multus != nil)
	}
	detail := ""
	if len(bad) > 0 {
		detail = ": " + strings.Join(bad, "; ")
	}
	return nil, model.Faultf(
		model.CodeInvalidConf, "the agent's form is derived of a network that is there; --watch waits for one",
		"directory %s: %w%s", p.dir, errNoNetwork, detail)
}

// current is the file that the form which is there was derived of.
func current(content map[string][]byte) string {
	for _, b := range content {
		if source, ok := derivedFrom(b); ok {
			return source
		}
	}
	return ""
}

// replace puts the form of a file before it, in the place of any other form.
func (p *place) replace(source string, form []byte, multus bool) ([]Change, error) {
	name, err := nameBefore(source, multus)
	if err != nil {
		return nil, err
	}
	action := Unchanged
	have, err := os.ReadFile(p.path(name))
	if err == nil {
		if _, mine := derivedFrom(have); !mine {
			return nil, model.Faultf(model.CodeInvalidConf, "give that file another name",
				"configuration %s: not weft's, nothing was changed",
				p.path(name))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, trouble(err)
	}
	if !bytes.Equal(have, form) {
		action = Installed
		info, err := os.Stat(p.path(source))
		if err != nil {
			return nil, trouble(err)
		}
		if err := p.put(name, bytes.NewReader(form), info.Mode().Perm()); err != nil {
			return nil, err
		}
	}
	changes := []Change{{p.path(name), action, "derived from " + source}}
	more, err := p.withdraw(name)
	return append(changes, more...), err
}

// withdraw takes away the forms that weft has derived, but for one.
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
