// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	vmcommand "github.com/weft-net/weft/internal/vm/command"
	"github.com/weft-net/weft/internal/vm/launch"
)

func newVMCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "vm", Short: "Run KubeVirt machines, and show how their network is made", Args: cobra.NoArgs,
	}
	cmd.AddCommand(vmcommand.NewPlan(env), vmcommand.NewXML(env), newVMRunCmd(env), newVMListCmd(env), newVMStatusCmd(env),
		newVMConsoleCmd(env),
		newVMStopCmd(env), newVMImageCmd(env), newVMWatchCmd(env), newVMAttachCmd(env), newVMDetachCmd(env),
		newVMLinkCmd(env), newVMApplyCmd(env))
	return cmd
}

func newVMListCmd(env ui.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the machines that weft vm run runs",
		Long: `Lists the machines that weft vm run runs on this machine. Keys of -o json: a list of {namespace, name, uid,
phase, nodeName, pod, netns, interfaces, runner, dir}.`,
		Args: ui.NoArgs,
	}
	vmDirFlag(cmd.Flags(), &dir)
	output := ui.OutputFlag(cmd, "text", "json")
	cmd.RunE = func(*cobra.Command, []string) error {
		all, err := launch.ReadAll(absolute(dir))
		if err != nil {
			return err
		}
		if *output == "json" {
			if all == nil {
				all = []launch.Status{}
			}
			return ui.PrintJSON(env.Stdout, all)
		}
		w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
		printMachines(w, all)
		return w.Flush()
	}
	return cmd
}

func printMachines(w io.Writer, all []launch.Status) {
	fmt.Fprintln(w, "MACHINE\tPHASE\tNODE\tPOD\tADDRESSES")
	for _, st := range all {
		var ips []string
		for _, i := range st.Interfaces {
			ips = append(ips, i.IPs...)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", st.Key(), st.Phase, st.Node, st.Pod, strings.Join(ips, " "))
	}
}

func newVMStatusCmd(env ui.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/]MACHINE",
		Short: "Show a machine that runs, as KubeVirt reports it",
		Long:  "Prints the VirtualMachineInstance with its status: the phase, and the interfaces as KubeVirt reports them.",
		Args:  cobra.ExactArgs(1),
	}
	vmDirFlag(cmd.Flags(), &dir)
	output := ui.OutputFlag(cmd, "yaml", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		st, err := vmFind(dir, args[0])
		if err != nil {
			return err
		}
		o := vmObject(st)
		if *output == "json" {
			return ui.PrintJSON(env.Stdout, o)
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		_, err = env.Stdout.Write(b)
		return err
	}
	return cmd
}

// vmObject is a machine as KubeVirt's API would show it.
func vmObject(st launch.Status) map[string]any {
	meta := map[string]any{"name": st.Name, "namespace": st.Namespace}
	if st.UID != "" {
		meta["uid"] = st.UID
	}
	phase := map[launch.Phase]string{
		launch.Starting: "Scheduled", launch.Running: "Running", launch.Stopping: "Running", launch.Dead: "Failed",
	}[st.Phase]
	status := map[string]any{"phase": phase, "interfaces": st.Interfaces}
	if st.Node != "" {
		status["nodeName"] = st.Node
	}
	return map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta, "status": status,
	}
}

// vmFind finds a machine by its name.
func vmFind(dir, name string) (launch.Status, error) {
	namespace, name := podName(name, "default")
	st, found, err := launch.Read(launch.MachineDir(absolute(dir), namespace+"/"+name))
	if err == nil && !found {
		err = model.Faultf(model.CodeInvalidConf, "see `weft vm list`", "no machine %s/%s runs", namespace, name)
	}
	return st, err
}

func newVMStopCmd(env ui.Env) *cobra.Command {
	var dir string
	var force, all bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop [NAMESPACE/]MACHINE...",
		Short: "Stop machines, and take away everything that is left of them",
		Long: `Presses the machine's button, as its manifest's terminationGracePeriodSeconds allows, and waits until the
machine, its pod and everything that was made for them are gone. With --force the machine is ended at once.`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 0) != all {
				return ui.UsageError(errors.New("name machines, or --all"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if all {
				machines, err := launch.ReadAll(absolute(dir))
				if err != nil {
					return err
				}
				for _, st := range machines {
					args = append(args, st.Key())
				}
			}
			var errs []error
			for _, name := range args {
				st, err := vmFind(dir, name)
				if err == nil {
					err = vmStop(ctx, env, st, force)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	vmDirFlag(cmd.Flags(), &dir)
	cmd.Flags().BoolVar(&force, "force", false, "end it at once")
	cmd.Flags().BoolVar(&all, "all", false, "stop all machines")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait")
	return cmd
}

// vmStop stops one machine.
func vmStop(ctx context.Context, env ui.Env, st launch.Status, force bool) error {
	if st.Phase == launch.Dead {
		return vmTidy(ctx, env, st)
	}
	sig := syscall.SIGTERM
	if force {
		sig = syscall.SIGKILL
	}
	if err := st.Runner.Signal(sig); err != nil {
		return err
	}
	for st.Runner.Alive() {
		select {
		case <-ctx.Done():
			return model.Faultf(model.CodeTryAgain, "--force ends it at once", "machine %s has not ended yet", st.Key())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if now, found, err := launch.Read(st.Dir); err == nil && found && now.Runner == st.Runner {
		if err := vmTidy(ctx, env, now); err != nil {
			return err
		}
	}
	fmt.Fprintf(env.Stdout, "machine %s stopped\n", st.Key())
	return nil
}

func newVMConsoleCmd(env ui.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "console [NAMESPACE/]MACHINE",
		Short: "Attach this terminal to a machine's serial console; Ctrl-] leaves it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := vmFind(dir, args[0])
			if err != nil {
				return err
			}
			return vmConsole(cmd.Context(), env, st.Dir)
		},
	}
	vmDirFlag(cmd.Flags(), &dir)
	return cmd
}

func newVMImageCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Make the guest that weft vm run boots, and print its files",
		Long:  "Makes, unless it is in the cache, what weft vm run boots: a kernel of Debian's and a first file system of busybox. Keys of -o json: kernel, initrd.",
		Args:  ui.NoArgs,
	}
	output := ui.OutputFlag(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		image, err := vmImage(cmd.Context(), env)
		if err != nil {
			return err
		}
		if *output == "json" {
			return ui.PrintJSON(env.Stdout, image)
		}
		fmt.Fprintf(env.Stdout, "%s\n%s\n", image.Kernel, image.Initrd)
		return nil
	}
	return cmd
}

// newVMWatchCmd is for weft itself.
func newVMWatchCmd(env ui.Env) *cobra.Command {
	return &cobra.Command{
		Use: "watch DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return vmWatch(cmd.Context(), env, args[0]) },
	}
}

// raw lets each key through to the guest, until restore.
func raw(fd int) (restore func(), err error) {
	was, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}, err
	}
	now := *was
	now.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	now.Oflag &^= unix.OPOST
	now.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	now.Cflag = now.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return func() {}, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, was) }, nil
}
