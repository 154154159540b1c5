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

// defaultVMDir is where machines that run are remembered.
const defaultVMDir = "/run/weft/machines"

// vmRun is weft vm run.
type vmRun struct {
	env                 ui.Env
	in                  vmcommand.Input
	pods                *sandboxFlags
	dir, records, agent string
	// netns is a pod that is there already; with it, pod is its name.
	netns, pod, store                     string
	kernel, initrd, append, accel, memory string
	hypervisor                            string
	disks                                 map[string]string
	detach, console, incoming             bool
	timeout                               time.Duration
}

func newVMRunCmd(env ui.Env) *cobra.Command {
	r := &vmRun{env: env, in: vmcommand.NewInput(env), pods: &sandboxFlags{}}
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the machine of a manifest in a pod of its own",
		Long: `Runs the VirtualMachineInstance or VirtualMachine in FILE ("-" is stdin): a pod is made and attached to its
networks as any other, the pod's network is given to the guest, weft-guest speaks to it, and QEMU runs it. When the
machine ends, however it does, nothing of it is left.

What boots is its disk: a hostDisk of the manifest, or a file given with --disk for a volume that is elsewhere.
Without any, and without --kernel, it is a small guest that is made once.

It runs until it is interrupted, which presses the machine's button, or in the background with --detach.`,
		Example: "  weft vm run --detach examples/vm/masquerade.yaml\n  weft vm status shop/web\n  weft vm console shop/web\n  weft vm stop shop/web",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.detach && r.console {
				return ui.UsageError(errors.New("--detach and --console contradict each other"))
			}
			return r.run(cmd, args[0])
		},
	}
	r.in.MachineFlags(cmd)
	f := cmd.Flags()
	r.pods.add(f)
	vmDirFlag(f, &r.dir)
	f.StringVar(&r.records, "records-dir", host.DefaultDir,
		"`DIR` where it is remembered what was made in pods, where there is no agent")
	f.StringVar(&r.agent, "agent-socket", wire.DefaultSocket,
		"`PATH` of the agent's socket; where there is none, this command does the agent's part")
	f.StringVar(&r.netns, "netns", "", "`PATH` of the network namespace of a pod that is there already")
	f.StringVar(&r.pod, "pod", "", "`NAME` of that pod, for what is reported")
	f.StringVar(&r.store, "store-dir", "",
		"`DIR` of the cluster's manifests: the pod asks there for networks that the machine gets while it runs")
	f.StringVar(&r.kernel, "kernel", "", "`FILE` that is booted instead of weft's own guest")
	f.StringVar(&r.initrd, "initrd", "", "`FILE` of its first file system")
	f.StringVar(&r.append, "append", "", "further `WORDS` for the kernel")
	f.StringToStringVar(&r.disks, "disk", nil, "`NAME=FILE`: the file of a disk whose volume is not on this node")
	f.StringVar(&r.accel, "accel", "tcg", "tcg or kvm")
	f.StringVar(&r.hypervisor, "hypervisor", "qemu", "qemu, or libvirt with a daemon of its own in the pod")
	f.StringVar(&r.memory, "memory", "", "memory of the guest in `MIB`, instead of what the manifest says")
	f.BoolVarP(&r.detach, "detach", "d", false, "run it in the background and return when it runs")
	f.BoolVar(&r.incoming, "incoming", false,
		"boot nothing: a machine that migrates brings its state, as weft lab migrate has it do")
	f.BoolVar(&r.console, "console", false, "attach this terminal to its console")
	f.DurationVar(&r.timeout, "timeout", time.Minute, "how long the pod may take to start")
	return cmd
}

func (r *vmRun) run(cmd *cobra.Command, file string) error {
	ctx := cmd.Context()
	data, err := r.in.Read(file)
	if err != nil {
		return err
	}
	r.in.Env.Stdin = bytesReader(data) // which is read once
	in, err := r.in.Machine("-")
	if err != nil {
		return err
	}
	l, err := manifest.ReadLaunch(data, r.in.Options())
	if err != nil {
		return err
	}
	r.dir = absolute(r.dir)
	dir := launch.MachineDir(r.dir, l.VM.Key())
	if err := r.free(ctx, dir); err != nil {
		return err
	}
	if r.netns == "" {
		if err := r.configured(); err != nil {
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
		fmt.Fprintf(r.env.Stderr, "weft: note: there is no user %d in this user namespace: the hypervisor runs as this one\n",
			in.VM.Owner)
		in.VM.Owner = uint32(os.Geteuid())
	}
	if len(in.DNS.Nameservers)+len(in.DNS.Search) == 0 {
		in.DNS = r.resolver(l.VM)
	}
	c := launch.Config{
		Dir: dir, Input: in, Speaker: filepath.Join(filepath.Dir(r.env.Self), "weft-guest"), QEMU: boot,
		Grace: time.Duration(l.Grace) * time.Second, Log: slog.New(slog.NewTextHandler(r.env.Stderr, nil)),
	}
	if r.hypervisor == "libvirt" {
		c.Hypervisor = func(ctx context.Context, q qemu.Config) (launch.Machine, error) { return libvirt.Start(ctx, q) }
	}
	self, _ := process.Read(os.Getpid())
	c.About = launch.Status{
		Namespace: l.VM.Namespace, Name: l.VM.Name, UID: l.VM.UID, Phase: launch.Starting, Node: r.pods.node,
		Runner: self, Dir: dir,
		Pod: l.VM.Namespace + "/" + launch.PodName(l.VM.Name), Agent: r.agent, Records: r.records,
		Interfaces: []launch.Interface{},
	}
	return r.withPod(ctx, l, c)
}

// configured refuses to wait for a pod that cannot start: its runtime has no network configuration.
func (r *vmRun) configured() error {
	for _, form := range []string{"*.conflist", "*.conf", "*.json"} {
		if found, _ := filepath.Glob(filepath.Join(r.pods.confDir, form)); len(found) > 0 {
			return nil
		}
	}
	return model.Faultf(model.CodeNotAvailable,
		"name a directory that has one with --cni-conf-dir, or the namespace of a pod that is there with --netns",
		"there is no network configuration in %s for the machine's pod", r.pods.confDir)
}

// free makes sure that the machine does not run yet, and takes away what is left of one that was killed.
func (r *vmRun) free(ctx context.Context, dir string) error {
	st, found, err := launch.Read(dir)
	switch {
	case err != nil || !found:
		return err
	case st.Phase == launch.Dead:
		return vmTidy(ctx, r.env, st)
	}
	return runsAlready(st)
}

// image says what is booted.
func (r *vmRun) image(ctx context.Context, l manifest.Launch) (qemu.Config, error) {
	c := qemu.Config{
		Kernel: r.kernel, Initrd: r.initrd, Append: r.append, Accel: r.accel, CPUs: l.CPUs, Memory: max(l.Memory, 0),
	}
	if r.incoming {
		c.Incoming = qemu.Deferred
	}
	if r.memory != "" {
		if _, err := fmt.Sscanf(r.memory, "%d", &c.Memory); err != nil || c.Memory <= 0 {
			return c, ui.UsageError(fmt.Errorf("--memory %q is no number of MiB", r.memory))
		}
	}
	if r.accel != "tcg" && r.accel != "kvm" {
		return c, ui.UsageError(fmt.Errorf("--accel %q is neither tcg nor kvm", r.accel))
	}
	if r.hypervisor != "qemu" && r.hypervisor != "libvirt" {
		return c, ui.UsageError(fmt.Errorf("--hypervisor %q is neither qemu nor libvirt", r.hypervisor))
	}
	if (r.kernel == "") != (r.initrd == "") {
		return c, ui.UsageError(errors.New("--kernel and --initrd are given together"))
	}
	if r.hypervisor == "libvirt" && r.incoming {
		return c, ui.UsageError(errors.New("--incoming is for the hypervisor qemu"))
	}
	if r.hypervisor == "libvirt" && len(r.disks) > 0 {
		return c, ui.UsageError(errors.New("--disk is for the hypervisor qemu"))
	}
	if r.kernel != "" || r.hypervisor == "qemu" && (disk.Config{Files: r.disks}).Bootable(l.Disks) {
		c.Memory = cmp.Or(c.Memory, guestimage.Memory)
		return c, nil
	}
	image, err := vmImage(ctx, r.env)
	c.Kernel, c.Initrd, c.Memory = image.Kernel, image.Initrd, max(c.Memory, guestimage.Memory)
	return c, err
}

func vmImage(ctx context.Context, env ui.Env) (guestimage.Image, error) {
	g, err := guestimage.Usual(filepath.Dir(env.Self))
	if err != nil {
		return guestimage.Image{}, err
	}
	g.Say = say(env)
	return g.Make(ctx)
}

// withPod makes the pod, unless it is there, runs the machine in it, and takes the pod away.
func (r *vmRun) withPod(ctx context.Context, l manifest.Launch, c launch.Config) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	whatever := context.WithoutCancel(ctx)
	path := r.netns
	if path != "" {
		c.About.Pod = cmp.Or(r.pod, c.About.Pod)
	} else {
		c.About.Runtime = absolute(r.pods.stateDir)
	}
	if err := claimMachine(ctx, c.About); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, launch.Forget(c.Dir)) }()
	if err := watchOver(r.env, c.Dir); err != nil {
		return err
	}
	if c.QEMU.Disks, err = r.openDisks(ctx, l, c.Dir); err != nil {
		return err
	}
	if path == "" {
		defer func() { err = errors.Join(err, vmStopPod(whatever, r.env, c.About)) }()
		if path, err = r.startPod(ctx, l); err != nil {
			return err
		}
		go r.follow(ctx, c.About, cancel)
	}
	c.About.Netns = path
	ns, err := netns.Open(path)
	if err != nil {
		return model.Faultf(model.CodeInvalidNetns, "", "--netns %s: %w", path, err)
	}
	defer func() { _ = ns.Close() }()
	c.Pod.NS = ns
	if c.Host, err = host.Open(ctx, host.Config{Socket: r.agent, Dir: r.records, Log: c.Log}); err != nil {
		return err
	}
	defer func() { _ = c.Host.Close() }()
	if err := r.inCluster(&c); err != nil {
		return err
	}
	return r.launch(ctx, cancel, c)
}

// openDisks finds the machine's disks and makes those that are its alone.
func (r *vmRun) openDisks(ctx context.Context, l manifest.Launch, dir string) ([]qemu.Disk, error) {
	note := func(s string) { fmt.Fprintf(r.env.Stderr, "weft: note: %s\n", s) }
	if r.hypervisor == "libvirt" && len(l.Disks) > 0 {
		note("the disks are left out: they are for the hypervisor qemu")
		return nil, nil
	}
	return disk.Config{Dir: dir, Files: r.disks, Note: note}.Open(ctx, l.Disks)
}

// launch runs the machine, with this terminal at its console where that is wanted.
func (r *vmRun) launch(ctx context.Context, cancel context.CancelCauseFunc, c launch.Config) error {
	c.Up = func(st launch.Status) {
		fmt.Fprintf(r.env.Stderr, "weft: machine %s runs in pod %s; its console: weft vm console %s\n", st.Key(),
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
