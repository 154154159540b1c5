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

// Config configures the installation.
type Config struct {
	// BinDir is the runtime's plugin directory, ConfDir its configuration directory; an empty ConfDir is not changed.
	BinDir, ConfDir string
	// From is the directory of weft's programs.
	From string
	// Plugins are the names under which weft-plugin is installed; none: as loopback if there is no loopback.
	Plugins []string
	// AgentPlugins are the names under which weft-cni is installed, for plugins that the agent serves. A foreign program
	// of such a name is kept, even with Replace: this program does not know what the node's agent serves.
	AgentPlugins []string
	// Replace allows replacing foreign programs of these names; they are kept under another name.
	Replace bool
	// Socket is the agent's, if it is not the default.
	Socket string
	// Multus, unless it is nil, requests Multus's form of the configuration, under Multus's name.
	Multus *Multus
}

// Change is the change of one file.
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
	binHint  = "name the runtime's plugin directory (containerd: bin_dir, usually /opt/cni/bin), or create it first"
	confHint = "name the runtime's configuration directory (containerd: conf_dir, usually /etc/cni/net.d), or create it first"
)

// Install installs the programs and then, with a ConfDir, the configuration that uses them. The changes include those
// before an error; a further call continues from there.
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
			return nil, nil, nil, model.Errorf(model.CodeInvalidConf,
				"name two directories: one for plugins and one for configurations",
				"%s and %s are the same directory", c.BinDir, c.ConfDir)
		}
	}
	if conf, err = open(ctx, c.ConfDir, confHint); err != nil {
		bin.close()
		return nil, nil, nil, err
	}
	return bin, conf, func() { conf.close(); bin.close() }, nil
}

// interrupted is the error of a canceled run.
func interrupted(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return model.Errorf(model.CodeTryAgain, "run it again: it continues from there", "interrupted: %w", ctx.Err())
}

// sources returns the files to install.
func (c Config) sources() (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{shimName, pluginName} {
		path := filepath.Join(c.From, name)
		if !isWeft(path) {
			return nil, model.Errorf(model.CodeIO, "`make build` puts them into bin/; --from names another directory",
				"%s is not a weft program", path)
		}
		if a, err := os.Stat(path); err == nil {
			if b, err := os.Stat(filepath.Join(c.BinDir, name)); err == nil && os.SameFile(a, b) {
				return nil, model.Errorf(model.CodeInvalidConf, "run the weft program of another directory, or set --from",
					"%s would be installed over itself", path)
			}
		}
		found[name] = path
	}
	return found, nil
}

// programs installs the programs: weft-cni and, if any name links to it, weft-plugin first, then its names.
func programs(ctx context.Context, c Config, bin *place, sources map[string]string) ([]Change, error) {
	names := slices.Sorted(slices.Values(c.Plugins))
	if len(names) == 0 {
		owned, err := ownerOf(bin.path(loopback))
		if err != nil {
			return nil, withHint(err)
		}
		if owned != foreign {
			names = []string{loopback}
		}
	}
	needed := []string{shimName}
	if owned, err := ownerOf(bin.path(pluginName)); err != nil {
		return nil, withHint(err)
	} else if len(names) > 0 || owned == weft { // an existing one is updated
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

// agentPlugins installs weft-cni under the names of plugins that the agent serves.
func agentPlugins(ctx context.Context, c Config, bin *place) ([]Change, error) {
	var changes []Change
	for _, name := range slices.Sorted(slices.Values(c.AgentPlugins)) {
		if err := interrupted(ctx); err != nil {
			return changes, err
		}
		owned, err := ownerOf(bin.path(name))
		if err != nil {
			return changes, withHint(err)
		}
		if owned == foreign {
			changes = append(changes, Change{
				bin.path(name), Kept, "another vendor's; remove it to use weft's, which needs an agent",
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

// refuse checks all names before anything is changed.
func refuse(c Config, bin *place, names []string) error {
	var others []string
	for _, name := range names {
		if name == "" || strings.ContainsRune(name, '/') || strings.HasPrefix(name, ".") {
			return model.Errorf(model.CodeInvalidConf, "", "plugin %q is not a file name", name)
		}
		path := bin.path(name)
		owned, err := ownerOf(path)
		if err != nil {
			return withHint(err)
		}
		if owned != foreign {
			continue
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return model.Errorf(model.CodeIO, "remove it", "%s is a directory", path)
		}
		others = append(others, name)
	}
	if len(others) > 0 && !c.Replace {
		return model.Errorf(model.CodeInvalidConf,
			"--replace-foreign replaces them and keeps each as NAME"+original+"; --remove restores them",
			"directory %s: %s: not weft's, and nothing was changed", bin.dir, strings.Join(others, ", "))
	}
	return nil
}

// program installs a copy of a program.
func (p *place) program(name, source string) (Change, error) {
	path := p.path(name)
	if info, err := os.Lstat(path); err == nil && info.Mode() == 0o755 {
		equal, err := same(path, source)
		if err != nil {
			return Change{}, withHint(err)
		}
		if equal {
			return Change{path, Unchanged, ""}, nil
		}
	}
	detail, err := p.keepOriginal(name)
	if err != nil {
		return Change{}, err
	}
	f, err := os.Open(source)
	if err != nil {
		return Change{}, withHint(err)
	}
	defer func() { _ = f.Close() }()
	return Change{path, Installed, detail}, p.write(name, f, 0o755)
}

// link makes a name a link to an installed program.
func (p *place) link(name, program string) (Change, error) {
	path := p.path(name)
	if target, err := os.Readlink(path); err == nil && target == program {
		return Change{path, Unchanged, ""}, nil
	}
	detail, err := p.keepOriginal(name)
	if err != nil {
		return Change{}, err
	}
	return Change{path, Installed, detail}, p.symlink(name, program)
}

// keepOriginal links a foreign program that is about to be replaced a second name.
func (p *place) keepOriginal(name string) (string, error) {
	owned, err := ownerOf(p.path(name))
	if err != nil {
		return "", withHint(err)
	}
	if owned != foreign {
		return "", nil
	}
	if err := p.linkCopy(name, name+original); err != nil {
		return "", err
	}
	return "the previous one is kept as " + name + original, nil
}
