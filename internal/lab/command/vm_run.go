// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/child"
	vmcommand "github.com/weft-net/weft/internal/vm/command"
	"github.com/weft-net/weft/internal/vm/disk"
	"github.com/weft-net/weft/internal/vm/guestimage"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/libvirt"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// defaultVMDir is the default state directory of running VMs.
const defaultVMDir = "/run/weft/machines" // glossary: the directory's name stays

// vmRun runs weft vm run.
type vmRun struct {
	env                 ui.Env
	in                  vmcommand.Input
	pods                *sandboxFlags
	dir, records, agent string
	// netns and pod are the namespace and the name of an existing pod.
	netns, pod, store                      string
	kernel, initrd, append, accel, memSize string
	hypervisor                             string
	disks                                  map[string]string
	detach, console, incoming              bool
	timeout                                time.Duration
}

func newVMRunCmd(env ui.Env) *cobra.Command {
	r := &vmRun{env: env, in: vmcommand.NewInput(env), pods: &sandboxFlags{}}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the VM of a manifest in a pod of its own",
		Long: `Runs the VirtualMachineInstance or VirtualMachine in FILE ("-" is stdin): it creates a pod, attaches it to its
networks, passes the pod's network to the guest, runs weft-guest for DHCP, and runs QEMU. When the VM stops for
whatever reason, everything is cleaned up.

It boots a disk: a hostDisk of the manifest, or a file of --disk for a volume that is not on this node. Without a disk
and without --kernel it boots a small guest, which is built once.

It runs until it is interrupted, which sends ACPI shutdown, or in the background with --detach.`,
		Example: "  weft vm run --detach examples/vm/masquerade.yaml\n  weft vm status shop/web\n  weft vm console shop/web\n  weft vm stop shop/web",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.detach && r.console {
				return ui.Misusef("leave out --detach or --console", "--detach and --console exclude each other")
			}
			return r.run(cmd, args[0])
		},
	}
	r.in.VMFlags(cmd)
	f := cmd.Flags()
	r.pods.add(f)
	vmDirFlag(f, &r.dir)
	f.StringVar(&r.records, "records-dir", host.DefaultDir,
		"`DIR` of the records of VMs in pods, without an agent")
	f.StringVar(&r.agent, "agent-socket", wire.DefaultSocket,
		"`PATH` of the agent's socket; without an agent, this command sets up the pod's network itself")
	f.StringVar(&r.netns, "netns", "", "`PATH` of the network namespace of an existing pod")
	f.StringVar(&r.pod, "pod", "", "`NAME` of the pod of --netns, for the status")
	f.StringVar(&r.store, "store-dir", "",
		"`DIR` of the cluster's manifests, for hot-plug: the networks annotation of the pod is set there")
	f.StringVar(&r.kernel, "kernel", "", "`FILE` of a kernel to boot instead of weft's own guest")
	f.StringVar(&r.initrd, "initrd", "", "`FILE` of the kernel's initrd")
	f.StringVar(&r.append, "append", "", "additional `ARGS` of the guest's kernel command line")
	f.StringToStringVar(&r.disks, "disk", nil, "`NAME=FILE` of a disk whose volume is not on this node")
	f.StringVar(&r.accel, "accel", "tcg", "`ACCELERATOR` of QEMU: tcg or kvm")
	f.StringVar(&r.hypervisor, "hypervisor", "qemu", "`HYPERVISOR`: qemu, or libvirt with a daemon of its own in the pod")
	f.StringVar(&r.memSize, "memory", "", "memory of the guest in `MIB` (default: the manifest's)")
	f.BoolVarP(&r.detach, "detach", "d", false, "run in the background and return when the VM is running")
	f.BoolVar(&r.incoming, "incoming", false, "wait for an incoming live migration, as weft lab migrate uses it")
	f.BoolVar(&r.console, "console", false, "attach this terminal to the VM's console")
	f.DurationVar(&r.timeout, "timeout", time.Minute, "`DURATION` to wait for the pod's start")
	return cmd
}

func (r *vmRun) run(cmd *cobra.Command, file string) error {
	ctx := cmd.Context()
	data, err := r.in.Read(file)
	if err != nil {
		return err
	}
	r.in.Env.Stdin = bytesReader(data) // stdin can be read only once
	in, err := r.in.PlanInput("-")
	if err != nil {
		return err
	}
	l, err := manifest.ReadLaunch(data, r.in.Options())
	if err != nil {
		return err
	}
	r.dir = absolute(r.dir)
	dir := launch.VMDir(r.dir, l.VM.Key())
	if err := r.checkNotRunning(ctx, dir); err != nil {
		return err
	}
	if r.netns == "" {
		if err := r.checkNetworkConfig(); err != nil {
			return err
		}
	}
	boot, err := r.image(ctx, l)
	if err != nil {
		return err
	}
	if r.detach {
		return r.background(ctx, foreground(cmd.Flags()), dir, data, l.VM)
	}
	if !child.Mapped(in.VM.Owner) {
		fmt.Fprintf(r.env.Stderr, "weft: note: user %d does not exist in this user namespace; the hypervisor runs as the current user\n",
			in.VM.Owner)
		in.VM.Owner = uint32(os.Geteuid())
	}
	if len(in.DNS.Nameservers)+len(in.DNS.Search) == 0 {
		in.DNS = r.resolver(l.VM)
	}
	c := launch.Config{
		Dir: dir, Input: in, WeftGuest: filepath.Join(filepath.Dir(r.env.Self), "weft-guest"), QEMU: boot,
		Grace: time.Duration(l.Grace) * time.Second, Log: slog.New(slog.NewTextHandler(r.env.Stderr, nil)),
	}
	if r.hypervisor == "libvirt" {
		c.Hypervisor = func(ctx context.Context, q qemu.Config) (launch.VM, error) { return libvirt.Start(ctx, q) }
	}
	self, _ := process.Read(os.Getpid())
	c.Status = launch.Status{
		Namespace: l.VM.Namespace, Name: l.VM.Name, UID: l.VM.UID, Phase: launch.Starting, Node: r.pods.node,
		Runner: self, Dir: dir,
		Pod: l.VM.Namespace + "/" + launch.PodName(l.VM.Name), Agent: r.agent, Records: r.records,
		Interfaces: []launch.Interface{},
	}
	return r.withPod(ctx, l, c)
}

// checkNetworkConfig refuses to start a pod whose runtime has no network configuration, instead of waiting for it.
func (r *vmRun) checkNetworkConfig() error {
	for _, form := range []string{"*.conflist", "*.conf", "*.json"} {
		if found, _ := filepath.Glob(filepath.Join(r.pods.confDir, form)); len(found) > 0 {
			return nil
		}
	}
	return model.Errorf(model.CodeNotAvailable,
		"choose a directory that has one with --cni-conf-dir, or an existing pod with --netns",
		"no network configuration in %s for the VM's pod", r.pods.confDir)
}

// checkNotRunning refuses a VM that is running, and cleans up one that was killed.
func (r *vmRun) checkNotRunning(ctx context.Context, dir string) error {
	st, found, err := launch.Read(dir)
	switch {
	case err != nil || !found:
		return err
	case st.Phase == launch.Dead:
		return removeDeadVM(ctx, r.env, st)
	}
	return alreadyRunning(st)
}

// image returns the hypervisor's configuration for booting.
func (r *vmRun) image(ctx context.Context, l manifest.Launch) (qemu.Config, error) {
	c := qemu.Config{
		Kernel: r.kernel, Initrd: r.initrd, Append: r.append, Accel: r.accel, CPUs: l.CPUs, Memory: max(l.Memory, 0),
	}
	if r.incoming {
		c.Incoming = qemu.IncomingDeferred
	}
	if r.memSize != "" {
		if _, err := fmt.Sscanf(r.memSize, "%d", &c.Memory); err != nil || c.Memory <= 0 {
			return c, ui.Misusef("for example --memory 128", "--memory %q is not a number of MiB", r.memSize)
		}
	}
	if r.accel != "tcg" && r.accel != "kvm" {
		return c, ui.UsageError(model.NotOneOf("--accel", r.accel, "tcg", "kvm"))
	}
	if r.hypervisor != "qemu" && r.hypervisor != "libvirt" {
		return c, ui.UsageError(model.NotOneOf("--hypervisor", r.hypervisor, "qemu", "libvirt"))
	}
	if (r.kernel == "") != (r.initrd == "") {
		return c, ui.UsageError(errors.New("--kernel and --initrd require each other"))
	}
	if r.hypervisor == "libvirt" && r.incoming {
		return c, ui.Misusef("add --hypervisor qemu", "--incoming does not fit --hypervisor libvirt")
	}
	if r.hypervisor == "libvirt" && len(r.disks) > 0 {
		return c, ui.Misusef("add --hypervisor qemu", "--disk does not fit --hypervisor libvirt")
	}
	if r.kernel != "" || r.hypervisor == "qemu" && (disk.Config{Files: r.disks}).Bootable(l.Disks) {
		c.Memory = cmp.Or(c.Memory, guestimage.MinMemory)
		return c, nil
	}
	image, err := vmImage(ctx, r.env)
	c.Kernel, c.Initrd, c.Memory = image.Kernel, image.Initrd, max(c.Memory, guestimage.MinMemory)
	return c, err
}

func vmImage(ctx context.Context, env ui.Env) (guestimage.Image, error) {
	g, err := guestimage.DefaultConfig(filepath.Dir(env.Self))
	if err != nil {
		return guestimage.Image{}, err
	}
	g.Progress = logf(env)
	return g.Build(ctx)
}

// withPod creates the pod, unless an existing one is used, runs the VM in it, and removes the pod.
func (r *vmRun) withPod(ctx context.Context, l manifest.Launch, c launch.Config) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	uncanceled := context.WithoutCancel(ctx)
	path := r.netns
	if path != "" {
		c.Status.Pod = cmp.Or(r.pod, c.Status.Pod)
	} else {
		c.Status.Runtime = absolute(r.pods.stateDir)
	}
	if err := claimVM(ctx, c.Status); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launch.RemoveDir(c.Dir)) }()
	if err := startWatcher(r.env, c.Dir); err != nil {
		return err
	}
	if c.QEMU.Disks, err = r.openDisks(ctx, l, c.Dir); err != nil {
		return err
	}
	if path == "" {
		defer func() { err = errors.Join(err, stopVMPod(uncanceled, r.env, c.Status)) }()
		if path, err = r.startPod(ctx, l); err != nil {
			return err
		}
		go r.watchPod(ctx, c.Status, cancel)
	}
	c.Status.Netns = path
	ns, err := netns.Open(path)
	if err != nil {
		return model.Errorf(model.CodeInvalidNetns, "", "--netns %s: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	c.Pod.NS = ns
	if c.Host, err = host.Open(ctx, host.Config{Socket: r.agent, Dir: r.records, Log: c.Log}); err != nil {
		return err
	}
	defer func() { _ = c.Host.Close() }()
	if err := r.enableHotplug(&c); err != nil {
		return err
	}
	return r.launch(ctx, cancel, c)
}

// openDisks opens the VM's disks, and creates the ones that belong to the VM alone.
func (r *vmRun) openDisks(ctx context.Context, l manifest.Launch, dir string) ([]qemu.Disk, error) {
	note := func(s string) { fmt.Fprintf(r.env.Stderr, "weft: note: %s\n", s) }
	if r.hypervisor == "libvirt" && len(l.Disks) > 0 {
		note("disks are skipped: they require --hypervisor qemu")
		return nil, nil
	}
	return disk.Config{Dir: dir, Files: r.disks, Note: note}.Open(ctx, l.Disks)
}

// launch runs the VM, and attaches this terminal to its console if requested.
func (r *vmRun) launch(ctx context.Context, cancel context.CancelCauseFunc, c launch.Config) error {
	c.OnRunning = func(st launch.Status) {
		fmt.Fprintf(r.env.Stderr, "weft: VM %s is running in pod %s; its console: weft vm console %s\n", st.Key(),
			st.Pod, st.Key())
		if r.console {
			go func() {
				err := vmConsole(ctx, r.env, c.Dir)
				cancel(err)
			}()
		}
	}
	err := c.Run(ctx)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
