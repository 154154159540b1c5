// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/node/install"
	"github.com/weft-net/weft/internal/plan/plugin"
)

type installFlags struct {
	cfg                    install.Config
	plugins, remove, watch bool
	agentPlugins           bool
	multus                 bool
	output                 string
}

func newInstallCmd(env Env) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install --cni-bin-dir DIR",
		Short: "Put weft's plugins and the agent's configuration where the runtime looks for them, or take them back",
		Long: "Puts weft-cni and weft-plugin into the runtime's plugin directory, loopback where the directory has none, and, with\n" +
			"--plugins, every plugin that weft has: calico, calico-ipam, whereabouts and weft have the node's agent do their work\n" +
			"(these alone: --agent-plugins). With --conf-dir it derives the agent's form of the network that the runtime\n" +
			"uses now and puts it before that file, which stays as it is. Each file is put in place whole, by renaming; doing it\n" +
			"again changes nothing. --multus writes that form as Multus' own installation does. --remove takes all of it back.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.UsageError(fmt.Errorf("%q: install has flags, no arguments", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd, env); err != nil {
				return ui.UsageError(err)
			}
			return f.run(cmd.Context(), env)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.cfg.BinDir, "cni-bin-dir", "", "the runtime's plugin directory (often /opt/cni/bin)")
	fl.StringVar(&f.cfg.ConfDir, "conf-dir", "",
		"the runtime's configuration directory (often /etc/cni/net.d): derive the agent's configuration there")
	fl.StringVar(&f.cfg.From, "from", "", "where weft-cni and weft-plugin are (default: beside this program)")
	fl.StringVar(&f.cfg.Socket, "socket", "", "the agent's socket, for the configuration, if it is not the usual one")
	fl.BoolVar(&f.plugins, "plugins", false,
		"weft's programs under the names of all plugins: weft-plugin, or weft-cni where the node's agent does the work")
	fl.BoolVar(&f.agentPlugins, "agent-plugins", false,
		"weft-cni under the names of the plugins whose work the node's agent does: calico, calico-ipam, weft, whereabouts")
	fl.BoolVar(&f.cfg.Replace, "replace-foreign", false,
		"replace other vendors' programs of these names, and keep each as NAME.weft-original")
	fl.BoolVar(&f.multus, "multus", false,
		"Multus' form of the configuration, in 00-multus.conf: further networks for pods of another vendor's network")
	fl.BoolVar(&f.watch, "watch", false, "go on and follow the changes of the configuration")
	fl.BoolVar(&f.remove, "remove", false, "take everything back")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	return cmd
}

// check refuses a command line that contradicts itself and completes the others.
func (f *installFlags) check(cmd *cobra.Command, env Env) error {
	for _, name := range []string{"cni-bin-dir", "conf-dir", "from", "socket"} {
		if fl := cmd.Flags().Lookup(name); fl.Changed && fl.Value.String() == "" {
			return fmt.Errorf("--%s is empty", name)
		}
	}
	switch {
	case f.cfg.BinDir == "":
		return errors.New("--cni-bin-dir is missing: name the runtime's plugin directory, often /opt/cni/bin")
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("output %q is neither text nor json", f.output)
	case f.cfg.Socket != "" && (!filepath.IsAbs(f.cfg.Socket) || len(f.cfg.Socket) > wire.MaxSocket):
		return fmt.Errorf("--socket %q is no absolute path of at most %d bytes", f.cfg.Socket, wire.MaxSocket)
	case f.cfg.ConfDir == "" && f.watch:
		return errors.New("--watch follows the directory that --conf-dir names, which is missing")
	case f.cfg.ConfDir == "" && f.multus:
		return errors.New("--multus writes into the directory that --conf-dir names, which is missing")
	case f.cfg.ConfDir == "" && f.cfg.Socket != "":
		return errors.New("--socket is written into the configuration, and --conf-dir is missing")
	}
	if f.remove {
		for _, name := range []string{"plugins", "agent-plugins", "multus", "replace-foreign", "watch", "from", "socket"} {
			if cmd.Flags().Changed(name) {
				return fmt.Errorf("--remove takes everything back: --%s says nothing there", name)
			}
		}
	}
	if f.multus {
		f.cfg.Multus = &install.Multus{}
	}
	if f.cfg.From == "" {
		f.cfg.From = filepath.Dir(env.Self)
	}
	if f.plugins {
		names := slices.Concat(slices.Collect(maps.Keys(plugin.Builtin())),
			slices.Collect(maps.Keys(builtin.Readers(os.ReadFile))))
		f.cfg.Plugins = slices.DeleteFunc(names, needsAgent)
	}
	if f.plugins || f.agentPlugins {
		f.cfg.AgentPlugins = wire.AgentPlugins()
	}
	return nil
}

// needsAgent reports whether plugins of the type have an agent do their work: weft-plugin under that name could not
// answer a call, and must not stand in the place of a program that can.
func needsAgent(name string) bool {
	return slices.Contains(wire.AgentPlugins(), name)
}

func (f *installFlags) run(ctx context.Context, env Env) error {
	if f.remove {
		changes, err := install.Remove(ctx, f.cfg)
		return errors.Join(f.print(env.Stdout, changes), err)
	}
	if !f.watch {
		changes, err := install.Install(ctx, f.cfg)
		return errors.Join(f.print(env.Stdout, changes), err)
	}
	programs := f.cfg
	programs.ConfDir = ""
	changes, err := install.Install(ctx, programs)
	if err := errors.Join(f.print(env.Stdout, changes), err); err != nil {
		return err
	}
	return install.Follow(ctx, f.cfg, func(changes []install.Change, err error) {
		_ = f.print(env.Stdout, changes) // nobody reads: no reason to stop
		if err != nil {
			ui.Warn(env.Stderr, err)
		}
	})
}

func (f *installFlags) print(w io.Writer, changes []install.Change) error {
	if f.output == "json" {
		if changes == nil {
			changes = []install.Change{}
		}
		b, err := json.Marshal(struct {
			Changes []install.Change `json:"changes"`
		}{changes})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	for _, c := range changes {
		line := fmt.Sprintf("%-9s %s", c.Action, c.Path)
		if c.Detail != "" {
			line += " (" + c.Detail + ")"
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
