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

// cniCall holds the flags of a manual CNI call. Flags and environment variables are cnitool's.
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
		"`NAME` of the interface in the namespace (CNI_IFNAME)")
	f.StringVar(&c.containerID, "container-id", "", "`ID` of the container (default: derived from the namespace's path)")
	f.StringVar(&c.binDir, "cni-bin-dir", or("CNI_PATH", "/opt/cni/bin"),
		"`DIR` of CNI plugins; several, separated by : (CNI_PATH)")
	f.StringVar(&c.cacheDir, "cni-cache-dir", libcni.CacheDir, "`DIR` where libcni caches results")
	f.StringVar(&c.capArgs, "capability-args", env.Getenv("CAP_ARGS"), "capability arguments, a `JSON` object (CAP_ARGS)")
	f.StringVar(&c.cniArgs, "cni-args", env.Getenv("CNI_ARGS"), "`KEY=VALUE` for the plugins; several, separated by ; (CNI_ARGS)")
}

// cniVerb describes one of add, del, check, gc and status.
type cniVerb struct {
	use, short, long, example string
	netns                     netnsUse
	run                       func(
		cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, c *cniCall,
	) error
}

type netnsUse int

const (
	netnsUnused netnsUse = iota
	netnsMayBeGone
	netnsNeeded
)

// newCNICallCmds returns the commands that execute a network's plugins.
func newCNICallCmds(env Env) []*cobra.Command {
	verbs := []cniVerb{
		{
			use: "add CONF NETNS", short: "Attach a network namespace to a network and print the result", netns: netnsNeeded,
			long: "Executes ADD of the network's plugins for the network namespace NETNS, as a container runtime does, prints the result\n" +
				"and caches it for `weft cni check` and `weft cni del`. The namespace must not be the caller's own.",
			example: "  weft cni add /etc/cni/net.d/00-weft.conflist /run/netns/pod1\n" +
				"  weft cni add pods /run/netns/pod1 --ifname net1",
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
			use: "del CONF NETNS", short: "Detach a network namespace from a network", netns: netnsMayBeGone,
			long: "Executes DEL of the network's plugins in reverse order, with the cached result of ADD, and deletes the cache. It may be\n" +
				"repeated, and NETNS may be gone: the container ID is derived from its path.",
			example: "  weft cni del /etc/cni/net.d/00-weft.conflist /run/netns/pod1\n" +
				"  weft cni del pods /run/netns/pod1 --ifname net1",
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, _ *cniCall,
			) error {
				return lib.DelNetworkList(cmd.Context(), list, rt)
			},
		}, {
			use: "check CONF NETNS", short: "Check that an attachment matches the result of its ADD", netns: netnsNeeded,
			long: "Executes CHECK of the network's plugins with the cached result of ADD. Plugins fail if the interface, an address, a\n" +
				"route or a rule of that result is missing. The exit code is 1 then.",
			example: "  weft cni check /etc/cni/net.d/00-weft.conflist /run/netns/pod1\n" +
				"  weft cni check pods /run/netns/pod1 --ifname net1",
			run: func(
				cmd *cobra.Command, lib *libcni.CNIConfig, list *confdir.Network, rt *libcni.RuntimeConf, _ *cniCall,
			) error {
				return lib.CheckNetworkList(cmd.Context(), list, rt)
			},
		}, {
			use: "gc CONF [NETNS]", short: "Garbage-collect the attachments of a network that are not valid",
			long: "Garbage-collects a network: deletes the attachments in libcni's cache that --valid does not list and, from CNI 1.1.0 on,\n" +
				"runs GC of its plugins. Without --valid no attachment is valid, and all are deleted.",
			example: "  weft cni gc /etc/cni/net.d/00-weft.conflist --valid cnitool-77383ca0a0715733ca6f/eth0\n" +
				"  weft cni gc pods",
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
			use: "status CONF [NETNS]", short: "Report whether a network's plugins are ready for ADD",
			long: "Executes STATUS of the network's plugins, from CNI 1.1.0 on. The exit code is 1 if a plugin reports that it cannot serve\n" +
				"ADD now, for example because the agent is not running or a pool has no address left.",
			example: "  weft cni status /etc/cni/net.d/00-weft.conflist\n  weft cni status pods",
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
	const conf = "CONF is a configuration file, or the name of a network in the directory $NETCONFPATH (default /etc/cni/net.d)."
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long + "\n\n" + conf, Example: v.example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 || len(args) == 1 && v.netns == netnsUnused {
				return nil
			}
			if len(args) == 0 && v.netns == netnsUnused {
				return cobra.MinimumNArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
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
			return networkError(list.Name, v.run(cmd, lib, list, rt, c))
		},
	}
	c.add(cmd, env)
	if strings.HasPrefix(v.use, "gc ") {
		cmd.Flags().StringSliceVar(&c.valid, "valid", nil, "`CONTAINERID/IFNAME` of a valid attachment; several, separated by commas")
	}
	return cmd
}

// writable checks that libcni can cache the result. libcni itself notices only after the plugins have run.
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
		return model.Errorf(model.CodeIO, "choose another --cni-cache-dir", "cache directory %q: %w", cacheDir, err)
	}
	return nil
}

// networkError adds the network's name and the CNI error code.
func networkError(name string, err error) error {
	var e *types.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return fmt.Errorf("network %s: %w (code %d)", name, err, e.Code)
	case strings.Contains(err.Error(), "failed to find plugin"): // libcni has no type for this error
		return model.Errorf(model.CodeInvalidConf, "name its directory with --cni-bin-dir", "network %s: %w", name, err)
	}
	return fmt.Errorf("network %s: %w", name, err)
}

// findNetwork loads a configuration file, or a network by name from the configuration directory.
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
		if err == nil {
			err = errors.New("it is not a regular file")
		}
		return nil, ui.FileError("name a configuration file, or a network in $NETCONFPATH (default /etc/cni/net.d)",
			"configuration", conf, err)
	}
	list, err := libcni.LoadNetworkConf(dir, conf)
	if err != nil {
		return nil, model.Errorf(model.CodeInvalidConf, "name a file, or set NETCONFPATH",
			"configuration %s is not a file, and %s has no network of that name: %w", conf, dir, err)
	}
	return list, nil
}

func (c *cniCall) runtimeConf(env Env, path string, use netnsUse) (*libcni.RuntimeConf, error) {
	if path == "" {
		return nil, ui.UsageError(model.Errorf(model.CodeInvalidNetns, netnsHint, "NETNS is empty"))
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
		rt.ContainerID = fmt.Sprintf("cnitool-%x", sum[:10]) // as cnitool does, so that each can DEL the other's attachments
	}
	if c.capArgs != "" {
		if err := json.Unmarshal([]byte(c.capArgs), &rt.CapabilityArgs); err != nil {
			return nil, ui.UsageError(
				model.Errorf(model.CodeInvalidEnv, `write for example {"portMappings":[…]}`,
					"capability arguments %.80q are not a JSON object: %w", c.capArgs, err),
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
				model.Errorf(model.CodeInvalidEnv, "write KEY=VALUE;KEY=VALUE", "CNI_ARGS: %q is not KEY=VALUE", pair),
			)
		}
		rt.Args = append(rt.Args, [2]string{k, v})
	}
	return rt, nil
}

const netnsHint = "`ip netns add NAME` creates one at /run/netns/NAME"

// checkNetns rejects a namespace that does not exist, and the caller's own, before a plugin runs.
func checkNetns(env Env, path string, use netnsUse) error {
	ns, err := netns.Open(path)
	if err != nil {
		if use == netnsMayBeGone && errors.Is(err, netns.ErrGone) {
			return nil
		}
		return model.Errorf(model.CodeInvalidNetns, netnsHint, "%w", err)
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
		return model.Errorf(model.CodeInvalidNetns, "name the namespace of a container; CNI_NETNS_OVERRIDE=1 allows this one",
			"namespace %s is the one that this program runs in", path)
	}
	return nil
}

func (c *cniCall) validAttachments() (*libcni.GCArgs, error) {
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, v := range c.valid {
		id, ifName, ok := strings.Cut(v, "/")
		if !ok || id == "" || ifName == "" {
			return nil, ui.Misusef("for example --valid 0123abc/eth0", "--valid %q is not CONTAINERID/IFNAME", v)
		}
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: ifName})
	}
	return args, nil
}
