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

// sandboxFlags name a runtime and what it works with. All verbs take them, so that one set of flags serves all.
type sandboxFlags struct {
	stateDir, confDir, binDir, cacheDir, logDir, podsDir string
	node, domain                                         string
	podCIDRs, clusterDNS                                 []string
	untilIdle                                            bool
	backOff, backOffCap, relist                          time.Duration
}

func (f *sandboxFlags) add(fs *pflag.FlagSet) {
	times := sandbox.KubeletTimes()
	fs.StringVar(&f.stateDir, "state-dir", "/run/weft/sandbox", "where the runtime keeps what it runs")
	fs.StringVar(&f.confDir, "cni-conf-dir", "/etc/cni/net.d",
		"network configurations; the first in lexical order is the default network")
	fs.StringVar(&f.binDir, "cni-bin-dir", "/opt/cni/bin", "CNI plugins; several directories are separated by :")
	fs.StringVar(&f.cacheDir, "cni-cache-dir", "/var/lib/cni", "where libcni keeps results")
	fs.StringVar(&f.logDir, "log-dir", "/var/log/pods", "containers' logs, in NAMESPACE_NAME_UID/CONTAINER/N.log")
	fs.StringVar(&f.podsDir, "pods-dir", "", "a directory of pod manifests that is kept running and followed")
	fs.StringVar(&f.node, "node", "", "this node's name (default: the host name)")
	fs.StringSliceVar(&f.podCIDRs, "pod-cidr", nil, "handed to plugins that declare the capability ipRanges")
	fs.StringSliceVar(&f.clusterDNS, "cluster-dns", nil,
		"name servers of pods with dnsPolicy ClusterFirst (default: as dnsPolicy Default)")
	fs.StringVar(&f.domain, "cluster-domain", "cluster.local", "search domain of pods with dnsPolicy ClusterFirst")
	fs.DurationVar(&f.backOff, "back-off", times.BackOff, "before the second restart of a container; doubles")
	fs.DurationVar(&f.backOffCap, "back-off-cap", times.BackOffCap, "the longest back-off")
	fs.DurationVar(&f.relist, "relist", times.Relist, "between two looks at what runs")
	fs.BoolVar(&f.untilIdle, "until-idle", false, "end when the last pod is gone")
}

// args are the flags again, for a runtime that is started in the background, from wherever.
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
			fmt.Errorf("--back-off, --back-off-cap and --relist must be positive, the cap not below the back-off"),
		)
	}
	for _, s := range f.podCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return c, ui.UsageError(fmt.Errorf("--pod-cidr %q is no prefix", s))
		}
		c.PodCIDRs = append(c.PodCIDRs, p)
	}
	for _, s := range f.clusterDNS {
		if _, err := netip.ParseAddr(s); err != nil {
			return c, ui.UsageError(fmt.Errorf("--cluster-dns %q is no address", s))
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
		Long: "Runs ordinary v1.Pod manifests as processes of this machine, in network, mount, UTS, IPC and PID namespaces of\n" +
			"their own, attached to their networks through CNI in the way a kubelet and its runtime do it.\n\n" +
			"Images are not pulled: the image field is recorded, the node's own files are the containers' root, and every\n" +
			"container needs a command. Pods outlive the runtime; when it is started again, it finds them.",
	}
	f.add(cmd.PersistentFlags())
	cmd.AddCommand(newSandboxServeCmd(env, f), newSandboxRunCmd(env, f), newSandboxStopCmd(env, f),
		newSandboxListCmd(env, f),
		newSandboxInspectCmd(env, f), newSandboxLogsCmd(env, f), newSandboxExecCmd(env, f), newSandboxStatusCmd(env, f))
	for _, name := range []string{"monitor", "init-container", "pause"} {
		cmd.AddCommand(&cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				code, done := container.Hidden([]string{env.Self}, append([]string{name}, args...), env.Stderr)
				if !done {
					return ui.UsageError(fmt.Errorf("sandbox %s is for weft itself", name))
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
		Short: "Run the runtime in the foreground; pods outlive it",
		Args:  ui.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(env)
			if err != nil {
				return err
			}
			if state == "" {
				return sandbox.Serve(cmd.Context(), cfg)
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			followed := make(chan struct{})
			go func() {
				defer close(followed)
				lab.Follower{Dir: lab.Dir(state), Node: cfg.Node, Log: cfg.Log.With("room", "lab"), After: time.After}.Follow(ctx)
			}()
			err = sandbox.Serve(cmd.Context(), cfg)
			cancel()
			<-followed
			return err
		},
	}
	cmd.Flags().StringVar(&state, "lab", "",
		"state `DIR` of a lab: run the pods of this node that are written into its store")
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
