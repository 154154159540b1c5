// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
)

// Config says what to install, and where.
type Config struct {
	// BinDir is the runtime's plugin directory, ConfDir its configuration directory; an empty ConfDir is left alone.
	BinDir, ConfDir string
	// From is the directory of weft's programs.
	From string
	// Plugins are the names under which weft-plugin is put in place; none: as loopback where there is no loopback.
	Plugins []string
	// AgentPlugins are the names under which weft-cni is put in place, for plugins whose work an agent does. A foreign
	// program of such a name stays, with Replace, too: nobody knows here what the node's agent will serve.
	AgentPlugins []string
	// Replace allows to replace foreign programs of these names; they are kept beside.
	Replace bool
	// Socket is the agent's, where it is not the usual one.
	Socket string
	// Multus, if there, asks for Multus' form of the configuration, under Multus' name.
	Multus *Multus
}

// Change is what was done about one file.
type Change struct {
	Path string `json:"path"`
	// Action is one of installed, unchanged, removed, restored, kept.
	Action string `json:"action"`
	Detail string `json:"detail,omitempty"`
}

// The actions.
const (
	Installed = "installed"
	Unchanged = "unchanged"
	Removed   = "removed"
	Restored  = "restored"
	Kept      = "kept"
)

const (
	binHint  = "name the runtime's plugin directory (containerd: bin_dir, usually /opt/cni/bin), or make it first"
	confHint = "name the runtime's configuration directory (containerd: conf_dir, usually /etc/cni/net.d), or make it first"
)

// Install puts the programs in place and then, with a ConfDir, the configuration that uses them. The changes tell of
// everything it looked after, also when it failed on the way; doing it again goes on from there.
func Install(ctx context.Context, c Config) ([]Change, error) {
	sources, err := c.sources()
	if err != nil {
		return nil, err
	}
	bin, conf, done, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	changes, err := programs(ctx, c, bin, sources)
	if err != nil || conf == nil {
		return changes, err
	}
	more, err := configure(conf, c)
	return append(changes, more...), err
}

// open locks the directories; done unlocks them.
func (c Config) open(ctx context.Context) (bin, conf *place, done func(), err error) {
	if bin, err = open(ctx, c.BinDir, binHint); err != nil || c.ConfDir == "" {
		return bin, nil, bin.close, err
	}
	if a, err := os.Stat(c.ConfDir); err == nil {
		if b, err := os.Stat(c.BinDir); err == nil && os.SameFile(a, b) {
			bin.close()
			return nil, nil, nil, model.Faultf(model.CodeInvalidConf,
				"runtimes have one directory for plugins and another for configurations",
				"%s and %s are one directory", c.BinDir, c.ConfDir)
		}
	}
	if conf, err = open(ctx, c.ConfDir, confHint); err != nil {
		bin.close()
		return nil, nil, nil, err
	}
	return bin, conf, func() { conf.close(); bin.close() }, nil
}

// interrupted is the error of a run that was told to stop.
func interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return model.Faultf(model.CodeTryAgain, "run it again: it goes on from there", "interrupted: %w", ctx.Err())
}

// sources are the files to install from.
func (c Config) sources() (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{shimName, pluginName} {
		path := filepath.Join(c.From, name)
		if !ours(path) {
			return nil, model.Faultf(model.CodeIO, "make build leaves them in bin/; --from names another directory",
				"%s is no program of weft's", path)
		}
		if a, err := os.Stat(path); err == nil {
			if b, err := os.Stat(filepath.Join(c.BinDir, name)); err == nil && os.SameFile(a, b) {
				return nil, model.Faultf(model.CodeInvalidConf, "run the weft of another directory, or give --from",
					"%s would be installed over itself", path)
			}
		}
		found[name] = path
	}
	return found, nil
}

// programs puts the programs in place: weft-cni and, where something is a name of it, weft-plugin first, then its
// names.
func programs(ctx context.Context, c Config, bin *place, sources map[string]string) ([]Change, error) {
	names := slices.Sorted(slices.Values(c.Plugins))
	if len(names) == 0 {
		who, err := whose(bin.path(loopback))
		if err != nil {
			return nil, trouble(err)
		}
		if who != foreign {
			names = []string{loopback}
		}
	}
	needed := []string{shimName}
	if who, err := whose(bin.path(pluginName)); err != nil {
		return nil, trouble(err)
	} else if len(names) > 0 || who == weft { // one that is there is brought up to date
		needed = []string{pluginName, shimName}
	}
	if err := refuse(c, bin, slices.Concat(needed, names)); err != nil {
		return nil, err
	}
	var changes []Change
	for _, name := range needed {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		done, err := bin.program(name, sources[name])
		if err != nil {
			return changes, err
		}
		changes = append(changes, done)
	}
	for _, name := range slices.Compact(names) {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		done, err := bin.link(name, pluginName)
		if err != nil {
			return changes, err
		}
		changes = append(changes, done)
	}
	if len(names) == 0 {
		changes = append(changes, Change{bin.path(loopback), Kept, "another vendor's"})
	}
	more, err := agentPlugins(ctx, c, bin)
	return append(changes, more...), err
}

// agentPlugins puts weft-cni in place under the names of plugins whose work an agent does.
func agentPlugins(ctx context.Context, c Config, bin *place) ([]Change, error) {
	var changes []Change
	for _, name := range slices.Sorted(slices.Values(c.AgentPlugins)) {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		who, err := whose(bin.path(name))
		if err != nil {
			return changes, trouble(err)
		}
		if who == foreign {
			changes = append(changes, Change{
				bin.path(name), Kept, "another vendor's; take it away to have weft's, which needs an agent",
			})
			continue
		}
		done, err := bin.link(name, shimName)
		if err != nil {
			return changes, err
		}
		changes = append(changes, done)
	}
	return changes, nil
}

// refuse looks at all names before anything is changed.
func refuse(c Config, bin *place, names []string) error {
	var others []string
	for _, name := range names {
		if name == "" || strings.ContainsRune(name, '/') || strings.HasPrefix(name, ".") {
			return model.Faultf(model.CodeInvalidConf, "", "plugin %q is no file name", name)
		}
		path := bin.path(name)
		who, err := whose(path)
		if err != nil {
			return trouble(err)
		}
		if who != foreign {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return model.Faultf(model.CodeIO, "take it away", "%s is a directory", path)
		}
		others = append(others, name)
	}
	if len(others) > 0 && !c.Replace {
		return model.Faultf(model.CodeInvalidConf,
			"--replace-foreign puts weft's in their places and keeps each as NAME"+original+"; --remove gives them back",
			"directory %s: %s: not weft's, nothing was changed", bin.dir, strings.Join(others, ", "))
	}
	return nil
}

// program puts a copy of a program in place.
func (p *place) program(name, source string) (Change, error) {
	path := p.path(name)
	if info, err := os.Lstat(path); err == nil && info.Mode() == 0o755 {
		equal, err := same(path, source)
		if err != nil {
			return Change{}, trouble(err)
		}
		if equal {
			return Change{path, Unchanged, ""}, nil
		}
	}
	detail, err := p.keep(name)
	if err != nil {
		return Change{}, err
	}
	f, err := os.Open(source)
	if err != nil {
		return Change{}, trouble(err)
	}
	defer func() { _ = f.Close() }()
	return Change{path, Installed, detail}, p.put(name, f, 0o755)
}

// link makes a name of a program that is in place.
func (p *place) link(name, program string) (Change, error) {
	path := p.path(name)
	if target, err := os.Readlink(path); err == nil && target == program {
		return Change{path, Unchanged, ""}, nil
	}
	detail, err := p.keep(name)
	if err != nil {
		return Change{}, err
	}
	return Change{path, Installed, detail}, p.point(name, program)
}

// keep gives a foreign program that is going to be replaced a second name.
func (p *place) keep(name string) (string, error) {
	who, err := whose(p.path(name))
	if err != nil {
		return "", trouble(err)
	}
	if who != foreign {
		return "", nil
	}
	if err := p.double(name, name+original); err != nil {
		return "", err
	}
	return "the one that was there is " + name + original, nil
}
