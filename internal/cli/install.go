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

	"github.com/weft-net/weft/internal/cli/printer"
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
	output                 *printer.Format
}

func newInstallCmd(env Env) *cobra.Command {
	var f installFlags
	cmd := &cobra.Command{
		Use:   "install --cni-bin-dir DIR",
		Short: "Install weft's CNI plugins and the runtime's network configuration, or remove them",
		Long: "Installs weft-cni and weft-plugin in the runtime's plugin directory, loopback if the directory has none, and, with\n" +
			"--plugins, all plugins of weft; the node's agent runs calico, calico-ipam, whereabouts and weft (only these:\n" +
			"--agent-plugins). With --conf-dir it derives a configuration that calls the agent from the network that the runtime\n" +
			"uses now. The new file sorts before that network's, which is not changed. Files are replaced atomically; installing\n" +
			"again changes nothing. --multus writes the configuration as Multus' installation does. --remove removes all of it.",
		Example: "  weft install --cni-bin-dir /opt/cni/bin --conf-dir /etc/cni/net.d\n" +
			"  weft install --cni-bin-dir /opt/cni/bin --plugins --replace-foreign\n" +
			"  weft install --cni-bin-dir /opt/cni/bin --conf-dir /etc/cni/net.d --remove",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return ui.Misusef("for example `weft install --cni-bin-dir /opt/cni/bin`", "unexpected argument %q", args[0])
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
	fl.StringVar(&f.cfg.BinDir, "cni-bin-dir", "", "`DIR` of the runtime's plugins (often /opt/cni/bin)")
	fl.StringVar(&f.cfg.ConfDir, "conf-dir", "",
		"`DIR` of the runtime's configurations (often /etc/cni/net.d): derive the agent's configuration there")
	fl.StringVar(&f.cfg.From, "from", "", "`DIR` of weft-cni and weft-plugin (default: this program's)")
	fl.StringVar(
		&f.cfg.Socket,
		"socket",
		"",
		"`PATH` of the agent's socket in the configuration, if it is not the default",
	)
	fl.BoolVar(&f.plugins, "plugins", false,
		"install all plugins: as links to weft-plugin, or to weft-cni for those that the node's agent runs")
	fl.BoolVar(&f.agentPlugins, "agent-plugins", false,
		"install the plugins that the node's agent runs, as links to weft-cni: calico, calico-ipam, weft, whereabouts")
	fl.BoolVar(&f.cfg.Replace, "replace-foreign", false,
		"replace other vendors' plugins of these names, and keep each as NAME.weft-original")
	fl.BoolVar(&f.multus, "multus", false,
		"write 00-multus.conf, as Multus does: additional networks for pods of another vendor's network")
	fl.BoolVar(&f.watch, "watch", false, "keep running, and follow changes of the runtime's configuration")
	fl.BoolVar(&f.remove, "remove", false, "remove everything that was installed")
	f.output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

const addConfDir = "add the runtime's configuration directory, often --conf-dir /etc/cni/net.d"

// check rejects flags that contradict each other and fills in defaults.
func (f *installFlags) check(cmd *cobra.Command, env Env) error {
	for _, name := range []string{"cni-bin-dir", "conf-dir", "from", "socket"} {
		if fl := cmd.Flags().Lookup(name); fl.Changed && fl.Value.String() == "" {
			example := map[string]string{
				"cni-bin-dir": "/opt/cni/bin",
				"conf-dir":    "/etc/cni/net.d",
				"from":        "bin",
				"socket":      wire.DefaultSocket,
			}
			return ui.Misusef("for example --"+name+" "+example[name]+", or leave it out", "--%s is empty", name)
		}
	}
	switch {
	case f.cfg.BinDir == "":
		return ui.Misusef("add the runtime's plugin directory, often --cni-bin-dir /opt/cni/bin", "--cni-bin-dir is missing")
	case f.cfg.Socket != "" && (!filepath.IsAbs(f.cfg.Socket) || len(f.cfg.Socket) > wire.MaxSocket):
		return ui.Misusef("for example --socket "+wire.DefaultSocket,
			"--socket %q is not an absolute path of at most %d bytes", f.cfg.Socket, wire.MaxSocket)
	case f.cfg.ConfDir == "" && f.watch:
		return ui.Misusef(addConfDir, "--watch follows the directory of --conf-dir, which is missing")
	case f.cfg.ConfDir == "" && f.multus:
		return ui.Misusef(addConfDir, "--multus writes into the directory of --conf-dir, which is missing")
	case f.cfg.ConfDir == "" && f.cfg.Socket != "":
		return ui.Misusef(addConfDir, "--socket is written into the configuration of --conf-dir, which is missing")
	}
	if f.remove {
		for _, name := range []string{"plugins", "agent-plugins", "multus", "replace-foreign", "watch", "from", "socket"} {
			if cmd.Flags().Changed(name) {
				return ui.Misusef("leave out --"+name, "--%s has no effect with --remove, which removes everything", name)
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

// needsAgent reports whether the agent runs plugins of the type, or offers the devices that it needs. weft-plugin under that
// name would fail without one, and must not replace a program that works.
func needsAgent(name string) bool {
	return name == plugin.MacvtapType || slices.Contains(wire.AgentPlugins(), name)
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
		_ = f.print(env.Stdout, changes) // a closed stdout is no reason to stop
		if err != nil {
			ui.Warn(env.Stderr, err)
		}
	})
}

func (f *installFlags) print(w io.Writer, changes []install.Change) error {
	if f.output.Document() {
		if changes == nil {
			changes = []install.Change{}
		}
		document := struct {
			Changes []install.Change `json:"changes"`
		}{changes}
		if !f.output.Is(printer.JSON) {
			return f.output.Print(w, document)
		}
		b, err := json.Marshal(document) // with --watch, a line for each change
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
