// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/container"
)

// sandboxFlags are the flags of a runtime. All commands accept all of them, so that one set of flags works for all.
type sandboxFlags struct {
	stateDir, confDir, binDir, cacheDir, logDir, podsDir string
	node, domain                                         string
	podCIDRs, clusterDNS                                 []string
	untilIdle                                            bool
	backOff, backOffCap, relist                          time.Duration
}

func (f *sandboxFlags) add(fs *pflag.FlagSet) {
	times := sandbox.KubeletTimes()
	fs.StringVar(&f.stateDir, "state-dir", "/run/weft/sandbox", "state `DIR` of the runtime")
	fs.StringVar(&f.confDir, "cni-conf-dir", "/etc/cni/net.d",
		"`DIR` of network configurations; the first in lexical order is the default network")
	fs.StringVar(&f.binDir, "cni-bin-dir", "/opt/cni/bin", "`DIR` of CNI plugins; several, separated by :")
	fs.StringVar(&f.cacheDir, "cni-cache-dir", "/var/lib/cni", "cache `DIR` of libcni")
	fs.StringVar(&f.logDir, "log-dir", "/var/log/pods", "`DIR` of containers' logs, in NAMESPACE_NAME_UID/CONTAINER/N.log")
	fs.StringVar(&f.podsDir, "pods-dir", "", "`DIR` with the manifests of static pods (default: none)")
	fs.StringVar(&f.node, "node", "", "`NAME` of this node (default: the host name)")
	fs.StringSliceVar(&f.podCIDRs, "pod-cidr", nil, "`PREFIX` for plugins that declare the capability ipRanges; several, separated by commas")
	fs.StringSliceVar(&f.clusterDNS, "cluster-dns", nil,
		"`ADDRESS` of a name server of pods with dnsPolicy ClusterFirst (default: as dnsPolicy Default)")
	fs.StringVar(&f.domain, "cluster-domain", "cluster.local", "search `DOMAIN` of pods with dnsPolicy ClusterFirst")
	fs.DurationVar(&f.backOff, "back-off", times.BackOff, "`DURATION` before the second restart of a container; doubles with each")
	fs.DurationVar(&f.backOffCap, "back-off-cap", times.BackOffCap, "longest `DURATION` before a restart")
	fs.DurationVar(&f.relist, "relist", times.Relist, "`DURATION` between two checks of the containers (the kubelet's PLEG)")
	fs.BoolVar(&f.untilIdle, "until-idle", false, "stop after the last pod is gone")
}

// args returns the flags with absolute paths, for a runtime in the background.
func (f *sandboxFlags) args() []string {
	abs := func(path string) string {
		if a, err := filepath.Abs(path); err == nil {
			return a
		}
		return path
	}
	bins := filepath.SplitList(f.binDir)
	for i := range bins {
		bins[i] = abs(bins[i])
	}
	out := []string{
		"--state-dir", abs(f.stateDir), "--cni-conf-dir", abs(f.confDir), "--cni-bin-dir",
		strings.Join(bins, string(filepath.ListSeparator)),
		"--cni-cache-dir", abs(f.cacheDir), "--log-dir", abs(f.logDir), "--node", f.node, "--cluster-domain", f.domain,
		"--back-off", f.backOff.String(), "--back-off-cap", f.backOffCap.String(), "--relist", f.relist.String(),
	}
	if f.podsDir != "" {
		out = append(out, "--pods-dir", abs(f.podsDir))
	}
	for _, c := range f.podCIDRs {
		out = append(out, "--pod-cidr", c)
	}
	for _, d := range f.clusterDNS {
		out = append(out, "--cluster-dns", d)
	}
	return out
}

func (f *sandboxFlags) config(env ui.Env) (sandbox.Config, error) {
	c := sandbox.Config{
		StateDir: f.stateDir, ConfDir: f.confDir, BinDirs: filepath.SplitList(f.binDir), CacheDir: f.cacheDir,
		LogDir:  f.logDir,
		PodsDir: f.podsDir, Node: f.node, ClusterDNS: f.clusterDNS, Domain: f.domain, UntilIdle: f.untilIdle,
		Self: []string{env.Self}, Now: time.Now, Times: sandbox.KubeletTimes(),
		Log:  slog.New(slog.NewTextHandler(env.Stderr, nil)),
		Args: f.args(),
	}
	c.Times.BackOff, c.Times.BackOffCap, c.Times.Relist = f.backOff, f.backOffCap, f.relist
	if c.Times.BackOff <= 0 || c.Times.BackOffCap < c.Times.BackOff || c.Times.Relist <= 0 {
		return c, ui.UsageError(
			fmt.Errorf("--back-off, --back-off-cap and --relist must be positive, and the cap not below the back-off"),
		)
	}
	for _, s := range f.podCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return c, ui.Misusef("for example --pod-cidr 10.42.0.0/24", "--pod-cidr %q is not a prefix", s)
		}
		c.PodCIDRs = append(c.PodCIDRs, p)
	}
	for _, s := range f.clusterDNS {
		if _, err := netip.ParseAddr(s); err != nil {
			return c, ui.Misusef("for example --cluster-dns 10.43.0.10", "--cluster-dns %q is not an IP address", s)
		}
	}
	if c.Node == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("host name: %w", err)
		}
		c.Node = name
	}
	return c, nil
}

func newSandboxCmd(env ui.Env) *cobra.Command {
	f := &sandboxFlags{}
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "Run pods as a kubelet and its container runtime do, through CNI",
		Long: "Runs v1.Pod manifests as processes of this host, in network, mount, UTS, IPC and PID namespaces of their own,\n" +
			"attached to their networks through CNI as a kubelet and its runtime do it.\n\n" +
			"Images are not pulled: the image field is recorded, the root filesystem is the host's, and every container needs a\n" +
			"command. Pods survive the runtime; a restarted runtime resumes them.",
		Example: "  weft sandbox run examples/web.yaml\n" +
			"  weft sandbox exec web -- ip addr\n" +
			"  weft sandbox stop --all",
	}
	f.add(cmd.PersistentFlags())
	cmd.AddCommand(newSandboxServeCmd(env, f), newSandboxRunCmd(env, f), newSandboxStopCmd(env, f),
		newSandboxListCmd(env, f),
		newSandboxInspectCmd(env, f), newSandboxLogsCmd(env, f), newSandboxExecCmd(env, f), newSandboxStatusCmd(env, f))
	for _, name := range []string{"monitor", "init-container", "pause"} {
		cmd.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				code, ok := container.Reexec([]string{env.Self}, append([]string{name}, args...), env.Stderr)
				if !ok {
					return ui.UsageError(fmt.Errorf("sandbox %s is internal to weft", name))
				}
				return ui.Exit(code)
			},
		})
	}
	return cmd
}

func newSandboxServeCmd(env ui.Env, f *sandboxFlags) *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the runtime in the foreground; pods survive it",
		Long: "Runs the runtime until SIGTERM: it runs the pods of --pods-dir and of `weft sandbox run`, restarts their containers and\n" +
			"resumes the pods of a previous runtime. `weft sandbox run` starts one in the background if none is running.",
		Example: "  weft sandbox serve --pods-dir examples\n" +
			"  weft sandbox serve --cni-conf-dir /etc/cni/net.d --until-idle",
		Args: ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(env)
			if err != nil {
				return err
			}
			if state == "" {
				return sandbox.Serve(cmd.Context(), cfg)
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				lab.PodRunner{
					Dir: lab.Dir(state), Node: cfg.Node, Self: env.Self, Env: childEnv(env),
					Log: cfg.Log.With("component", "lab"), After: time.After,
				}.Run(ctx)
			}()
			err = sandbox.Serve(cmd.Context(), cfg)
			cancel()
			<-done
			return err
		},
	}
	cmd.Flags().StringVar(&state, "lab", "",
		"state `DIR` of a lab: run the pods of this node in its store")
	_ = cmd.Flags().MarkHidden("lab")
	return cmd
}

// podName splits NAME or NAMESPACE/NAME.
func podName(s, namespace string) (string, string) {
	if ns, name, ok := strings.Cut(s, "/"); ok {
		return ns, name
	}
	return namespace, s
}
