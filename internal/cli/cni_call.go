// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni/confdir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/network"
)

// cniCall is one call of a network by hand, with the flags and variables of cnitool.
type cniCall struct {
	ifName, containerID, binDir, cacheDir string
	capArgs, cniArgs                      string
	valid                                 []string
}

func (c *cniCall) add(cmd *cobra.Command, env Env) {
	or := func(v, otherwise string) string {
		if s := env.Getenv(v); s != "" {
			return s
		}
		return otherwise
	}
	f := cmd.Flags()
	f.StringVarP(&c.ifName, "ifname", "i", or("CNI_IFNAME", network.IfDefault),
		"name of the interface in the namespace (CNI_IFNAME)")
	f.StringVar(&c.containerID, "container-id", "", "container id (default: made from the namespace's path)")
	f.StringVar(&c.binDir, "cni-bin-dir", or("CNI_PATH", "/opt/cni/bin"),
		"CNI plugins; several directories are separated by : (CNI_PATH)")
	f.StringVar(&c.cacheDir, "cni-cache-dir", libcni.CacheDir, "where libcni keeps results")
	f.StringVar(&c.capArgs, "capability-args", env.Getenv("CAP_ARGS"), "JSON object of capability arguments (CAP_ARGS)")
	f.StringVar(&c.cniArgs, "cni-args", env.Getenv("CNI_ARGS"), "KEY=VALUE;KEY=VALUE for the plugins (CNI_ARGS)")
}

// cniVerb is what add, del, check, gc and status have in common.
type cniVerb struct {
	use, short, long string
	netns            netnsUse
	run              func(
		cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, c *cniCall,
	) error
}

type netnsUse int

const (
	netnsUnused netnsUse = iota
	netnsMayBeGone
	netnsNeeded
)

// newCNICallCmds are the verbs that execute a network by hand.
func newCNICallCmds(env Env) []*cobra.Command {
	verbs := []cniVerb{
		{
			use: "add CONF NETNS", short: "Attach a network namespace to a network and print the result", netns: netnsNeeded,
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, c *cniCall,
			) error {
				if err := writable(c.cacheDir); err != nil {
					return err
				}
				r, err := lib.AddNetworkList(cmd.Context(), list, rt)
				if err != nil || r == nil {
					return err
				}
				return r.PrintTo(env.Stdout)
			},
		}, {
			use: "del CONF NETNS", short: "Take a network namespace off a network", netns: netnsMayBeGone,
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, _ *cniCall,
			) error {
				return lib.DelNetworkList(cmd.Context(), list, rt)
			},
		}, {
			use: "check CONF NETNS", short: "Check that an attachment is as it was made", netns: netnsNeeded,
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, _ *cniCall,
			) error {
				return lib.CheckNetworkList(cmd.Context(), list, rt)
			},
		}, {
			use: "gc CONF [NETNS]", short: "Take away what belongs to no valid attachment of a network",
			long: "Takes away what belongs to no valid attachment of a network: first the attachments in the cache, then, from\n" +
				"CNI 1.1.0 on, whatever its plugins find. Without --valid that is everything.",
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, _ *libcni.RuntimeConf, c *cniCall,
			) error {
				args, err := c.validAttachments()
				if err != nil {
					return err
				}
				return lib.GCNetworkList(cmd.Context(), list, args)
			},
		}, {
			use: "status CONF [NETNS]", short: "Ask whether a network can attach anything now",
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, _ *libcni.RuntimeConf, _ *cniCall,
			) error {
				return lib.GetStatusNetworkList(cmd.Context(), list)
			},
		},
	}
	out := make([]*cobra.Command, 0, len(verbs))
	for _, v := range verbs {
		out = append(out, v.command(env))
	}
	return out
}

func (v cniVerb) command(env Env) *cobra.Command {
	c := &cniCall{}
	const conf = "CONF is a configuration file, or the name of a network in the directory NETCONFPATH (default /etc/cni/net.d)."
	long := v.short + "."
	if v.long != "" {
		long = v.long
	}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: long + "\n\n" + conf,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 || len(args) == 1 && v.netns == netnsUnused {
				return nil
			}
			return ui.UsageError(errors.New("name a configuration and a network namespace"))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := findNetwork(env, args[0])
			if err != nil {
				return err
			}
			rt := &libcni.RuntimeConf{}
			if v.netns != netnsUnused {
				if rt, err = c.runtimeConf(env, args[1], v.netns); err != nil {
					return err
				}
			}
			lib := network.NewLib(filepath.SplitList(c.binDir), c.cacheDir, env.Stderr)
			return refused(list.Name, v.run(cmd, lib, list, rt, c))
		},
	}
	c.add(cmd, env)
	if strings.HasPrefix(v.use, "gc ") {
		cmd.Flags().StringSliceVar(&c.valid, "valid", nil, "CONTAINERID/IFNAME of an attachment that stays")
	}
	return cmd
}

// writable makes sure that libcni will be able to keep the result. It finds out only after the network is attached.
func writable(cacheDir string) error {
	dir := filepath.Join(cacheDir, "results")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".weft-"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return model.Faultf(model.CodeIO, "choose another --cni-cache-dir", "cache directory %q: %w", cacheDir, err)
	}
	return nil
}

// refused says which network refused, and the code it gave.
func refused(name string, err error) error {
	var e *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return fmt.Errorf("network %s: %w (code %d)", name, err, e.Code)
	case strings.Contains(err.Error(), "failed to find plugin"): // libcni has no better word for it
		return model.Faultf(model.CodeInvalidConf, "name its directory with --cni-bin-dir", "network %s: %w", name, err)
	}
	return fmt.Errorf("network %s: %w", name, err)
}

// findNetwork reads a configuration file, or finds a network by its name.
func findNetwork(env Env, conf string) (*confdir.Network, error) {
	dir := env.Getenv("NETCONFPATH")
	if dir == "" {
		dir = "/etc/cni/net.d"
	}
	st, err := os.Stat(conf)
	if conf == "-" || err == nil && st.Mode().IsRegular() {
		b, err := ui.ReadConf(env, conf)
		if err != nil {
			return nil, err
		}
		return confdir.Parse(b, filepath.Dir(conf))
	}
	if strings.Contains(conf, "/") {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	list, err := libcni.LoadNetworkConf(dir, conf)
	if err != nil {
		return nil, model.Faultf(model.CodeInvalidConf, "name a file, or set NETCONFPATH",
			"configuration %s is no file, and no network of that name was found in %s: %w", conf, dir, err)
	}
	return list, nil
}

func (c *cniCall) runtimeConf(env Env, path string, use netnsUse) (*libcni.RuntimeConf, error) {
	if path == "" {
		return nil, ui.UsageError(model.Faultf(model.CodeInvalidNetns, netnsHint, "NETNS is empty"))
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", path, err)
	}
	if err := checkNetns(env, path, use); err != nil {
		return nil, err
	}
	rt := &libcni.RuntimeConf{ContainerID: c.containerID, NetNS: path, IfName: c.ifName}
	if rt.ContainerID == "" {
		sum := sha512.Sum512([]byte(path))
		rt.ContainerID = fmt.Sprintf("cnitool-%x", sum[:10]) // as cnitool, so that one can undo what the other did
	}
	if c.capArgs != "" {
		if err := json.Unmarshal([]byte(c.capArgs), &rt.CapabilityArgs); err != nil {
			return nil, ui.UsageError(
				model.Faultf(model.CodeInvalidEnv, `write for example {"portMappings":[…]}`,
					"capability arguments %.80q are no JSON object: %w", c.capArgs, err),
			)
		}
	}
	for pair := range strings.SplitSeq(c.cniArgs, ";") {
		k, v, ok := strings.Cut(pair, "=")
		if pair == "" {
			continue
		}
		if !ok || k == "" || strings.Contains(v, "=") {
			return nil, ui.UsageError(
				model.Faultf(model.CodeInvalidEnv, "write KEY=VALUE;KEY=VALUE", "CNI_ARGS: %q is no KEY=VALUE", pair),
			)
		}
		rt.Args = append(rt.Args, [2]string{k, v})
	}
	return rt, nil
}

const netnsHint = "`ip netns add NAME` makes one, at /run/netns/NAME"

// checkNetns refuses what no plugin can work on, before any is executed.
func checkNetns(env Env, path string, use netnsUse) error {
	ns, err := netns.Open(path)
	if err != nil {
		if use == netnsMayBeGone && errors.Is(err, netns.ErrGone) {
			return nil
		}
		return model.Faultf(model.CodeInvalidNetns, netnsHint, "%w", err)
	}
	defer func() { _ = ns.Close() }()
	own, err := netns.Current()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	same, err := netns.Same(ns, own)
	if err != nil {
		return err
	}
	if o := strings.ToLower(env.Getenv("CNI_NETNS_OVERRIDE")); same && o != "true" && o != "1" {
		return model.Faultf(model.CodeInvalidNetns, "name the namespace of a container; CNI_NETNS_OVERRIDE=1 insists",
			"namespace %s is the one this program runs in", path)
	}
	return nil
}

func (c *cniCall) validAttachments() (*libcni.GCArgs, error) {
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, v := range c.valid {
		id, ifName, ok := strings.Cut(v, "/")
		if !ok || id == "" || ifName == "" {
			return nil, ui.UsageError(fmt.Errorf("--valid %q is no CONTAINERID/IFNAME", v))
		}
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: ifName})
	}
	return args, nil
}
