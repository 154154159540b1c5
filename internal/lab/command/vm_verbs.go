// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	vmcommand "github.com/weft-net/weft/internal/vm/command"
	"github.com/weft-net/weft/internal/vm/launch"
)

func newVMCmd(env ui.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "vm",
		Short: "Run KubeVirt VMs and show their network",
		Long: `Runs the VirtualMachineInstances and VirtualMachines of manifests under QEMU or libvirt, without KubeVirt: each VM in a
pod of its own, with the network of its pod under KubeVirt. It shows a VM's network plan, and changes the interfaces of
running VMs.`,
		Example: "  weft vm run --detach examples/vm/masquerade.yaml\n" +
			"  weft vm console shop/web\n" +
			"  weft vm plan examples/vm/bridge.yaml",
		Args: cobra.NoArgs,
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
		Short: "List the VMs that weft vm run runs",
		Long: `Lists the VMs that weft vm run runs on this host. Keys of -o json: a list of {namespace, name, uid, phase,
nodeName, pod, netns, interfaces, runner, dir}.`,
		Example: "  weft vm list\n" +
			"  weft vm list -o wide\n" +
			"  weft vm list --watch\n" +
			"  weft vm list -o json",
		Args: ui.NoArgs,
	}
	vmDirFlag(cmd.Flags(), &dir)
	watch := printer.Objects(cmd.Flags(), true).Watch(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return watch.Show(cmd.Context(), env.Stdout, env.Stderr, func(context.Context) (printer.Result, error) {
			all, err := launch.ReadAll(absolute(dir))
			if all == nil {
				all = []launch.Status{}
			}
			return printer.Result{Document: all, Tables: []printer.Table{vmTable(all)}}, err
		})
	}
	return cmd
}

// vmTable returns VMs as a table.
func vmTable(all []launch.Status) printer.Table {
	t := printer.Table{Header: []string{"VM", "PHASE", "NODE", "POD", "ADDRESSES", "NETNS", "DIRECTORY"}, Wide: 2}
	for _, st := range all {
		var ips []string
		for _, i := range st.Interfaces {
			ips = append(ips, i.IPs...)
		}
		t.Row(st.Key(), st.Key(), string(st.Phase), st.Node, st.Pod, strings.Join(ips, " "), st.Netns, st.Dir)
	}
	return t
}

func newVMStatusCmd(env ui.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "status [NAMESPACE/]VM",
		Short: "Show a running VM, as KubeVirt reports it",
		Long:  "Prints the VirtualMachineInstance with its status: the phase, and the interfaces as KubeVirt reports them.",
		Example: "  weft vm status shop/web\n" +
			"  weft vm status shop/web -o json",
		Args: cobra.ExactArgs(1),
	}
	vmDirFlag(cmd.Flags(), &dir)
	output := printer.Flag(cmd.Flags(), printer.YAML, printer.JSON)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		st, err := vmFind(dir, args[0])
		if err != nil {
			return err
		}
		o := vmObject(st)
		return output.Print(env.Stdout, o)
	}
	cmd.ValidArgsFunction = complete.Args(vmNames(&dir))
	return cmd
}

// vmObject returns a VM as an object of KubeVirt's API.
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

// vmFind finds a running VM by its name.
func vmFind(dir, name string) (launch.Status, error) {
	namespace, name := podName(name, "default")
	st, found, err := launch.Read(launch.VMDir(absolute(dir), namespace+"/"+name))
	if err == nil && !found {
		err = model.Errorf(model.CodeInvalidConf, "see `weft vm list`", "VM %s/%s is not running", namespace, name)
	}
	return st, err
}

func newVMStopCmd(env ui.Env) *cobra.Command {
	var dir string
	var force, all bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "stop [NAMESPACE/]VM...",
		Short: "Stop VMs and clean up after them",
		Long: `Sends ACPI shutdown, with the manifest's terminationGracePeriodSeconds as the grace period, and waits until the VM,
its pod and everything that belongs to them are removed. With --force it kills the VM.`,
		Example: "  weft vm stop shop/web\n" +
			"  weft vm stop --all --timeout 30s",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !all:
				return ui.Misusef("`weft vm list` lists them; `weft vm stop --all` stops all", "no VM named")
			case len(args) > 0 && all:
				return ui.Misusef("leave out --all or the VMs", "argument %q does not fit --all", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if all {
				vms, err := launch.ReadAll(absolute(dir))
				if err != nil {
					return err
				}
				for _, st := range vms {
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
	cmd.Flags().BoolVar(&force, "force", false, "kill the VM")
	cmd.Flags().BoolVar(&all, "all", false, "stop all VMs")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "`DURATION` to wait for the VMs")
	cmd.ValidArgsFunction = complete.Every(vmNames(&dir))
	return cmd
}

// vmStop stops one VM.
func vmStop(ctx context.Context, env ui.Env, st launch.Status, force bool) error {
	if st.Phase == launch.Dead {
		return removeDeadVM(ctx, env, st)
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
			return model.Errorf(model.CodeTryAgain, "--force kills it", "VM %s has not stopped yet", st.Key())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if now, found, err := launch.Read(st.Dir); err == nil && found && now.Runner == st.Runner {
		if err := removeDeadVM(ctx, env, now); err != nil {
			return err
		}
	}
	fmt.Fprintf(env.Stdout, "VM %s stopped\n", st.Key())
	return nil
}

func newVMConsoleCmd(env ui.Env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "console [NAMESPACE/]VM",
		Short: "Attach this terminal to a VM's serial console; Ctrl-] detaches",
		Long: `Connects stdin and stdout to the serial console of a VM of weft vm run, until Ctrl-] is pressed, the input ends or the
VM stops. The guest keeps running.`,
		Example: "  weft vm console shop/web\n" +
			"  weft vm console default/direct",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := vmFind(dir, args[0])
			if err != nil {
				return err
			}
			return vmConsole(cmd.Context(), env, st.Dir)
		},
	}
	vmDirFlag(cmd.Flags(), &dir)
	cmd.ValidArgsFunction = complete.Args(vmNames(&dir))
	return cmd
}

// newVMWatchCmd returns a command that is internal to weft.
func newVMWatchCmd(env ui.Env) *cobra.Command {
	return &cobra.Command{
		Use: "watch DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return vmWatch(cmd.Context(), env, args[0]) },
	}
}

// raw sets the terminal to raw mode until restore is called.
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
