// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Machines is where the machines of a node are remembered.
func (d Dir) Machines(node string) string { return d.Node(node, "machines") }

// machine is a virtual machine of the manifests.
type machine struct {
	manifest.Launch
	raw  []byte
	node string
}

// isMachine tells whether an object is one of KubeVirt's machines.
func isMachine(o store.Object) bool {
	return o.Key.Group == "kubevirt.io" && (o.Key.Kind == "VirtualMachineInstance" || o.Key.Kind == "VirtualMachine")
}

// wrapMachines reads the machines of the store, and adds the pods around them.
func wrapMachines(ctx context.Context, s *dir.Store) ([]machine, error) {
	objects, err := s.List("")
	if err != nil {
		return nil, err
	}
	var out []machine
	for _, o := range objects {
		if !isMachine(o) {
			continue
		}
		l, err := manifest.ReadLaunch(o.Raw, manifest.Options{})
		var f *model.Fault
		if errors.As(err, &f) {
			err = &model.Fault{Code: f.Code, Msg: fmt.Sprintf("machine %s: %s", o.Key.Name, f.Msg), Hint: f.Hint, Err: f}
		}
		if err != nil {
			return nil, err
		}
		text, err := launch.Pod(l, []string{"sleep", "infinity"})
		if err != nil {
			return nil, err
		}
		pod, err := store.NewObject(text)
		if err == nil {
			_, err = s.Create(ctx, pod)
		}
		if err != nil {
			return nil, fmt.Errorf("machine %s: its pod: %w", l.VM.Key(), err)
		}
		out = append(out, machine{Launch: l, raw: o.Raw})
	}
	return out, nil
}

// place is where the pod around a machine is.
func (m *machine) place(pods []model.Pod) {
	for _, p := range pods {
		if p.Namespace == m.VM.Namespace && p.Name == launch.PodName(m.VM.Name) {
			m.node = p.Node
		}
	}
}

const (
	// bootLimit bounds how long machines may take: where they are emulated on a busy machine, they take long.
	bootLimit = 3 * time.Minute
	// emulated is how many boot at a time.
	emulated = 2
)

// runMachines starts the machines in their pods, and waits until their guests have addresses.
func (u Up) runMachines(ctx context.Context, machines []machine, died func(error)) error {
	if len(machines) == 0 {
		return nil
	}
	u.Say("booting %d virtual machines (no disks: weft's own small guest)", len(machines))
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(emulated)
	for _, m := range machines {
		group.Go(func() error {
			if err := u.runMachine(gctx, m, died); err != nil {
				return fmt.Errorf("machine %s on %s: %w", m.VM.Key(), m.node, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (u Up) runMachine(ctx context.Context, m machine, died func(error)) error {
	pod, err := u.Dir.Sandboxes(m.node).Get(ctx, m.VM.Namespace, launch.PodName(m.VM.Name))
	if err != nil {
		return err
	}
	dir, err := u.startMachine(m, pod.Pod, died)
	if err != nil {
		return err
	}
	return awaitGuest(ctx, dir, m.VM)
}

// startMachine starts a machine in its pod, with further arguments of `weft vm run`, and gives the machine's directory.
func (u Up) startMachine(m machine, pod sandbox.Pod, died func(error), further ...string) (dir string, err error) {
	at := u.Dir.Machines(m.node)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", u.Dir.unwritable(err)
	}
	dir = launch.MachineDir(at, m.VM.Key())
	if err := os.WriteFile(dir+".yaml", m.raw, 0o600); err != nil {
		return "", u.Dir.unwritable(err)
	}
	log, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return "", u.Dir.unwritable(err)
	}
	defer func() { _ = log.Close() }()
	ns, err := netns.Open(u.Dir.NS(m.node))
	if err != nil {
		return "", err
	}
	defer func() { _ = ns.Close() }()
	argv := append([]string{
		"vm", "run", "--dir", at, "--node", m.node, "--netns", pod.Netns, "--pod", pod.Namespace + "/" + pod.Name,
		"--agent-socket", u.Dir.AgentSocket(m.node), "--records-dir", u.Dir.Node(m.node, "vm"), "--store-dir", u.Dir.Store(),
	}, further...)
	cmd := exec.Command(u.Self, append(argv, dir+".yaml")...)
	cmd.Dir, cmd.Env = "/", append([]string{markVar + "=" + string(u.Dir)}, u.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		return "", err
	}
	go func() {
		err := cmd.Wait()
		died(fmt.Errorf("machine %s on %s ended (%s): %s", m.VM.Key(), m.node, cmd.ProcessState, lastWords(dir+".log", err)))
	}()
	return dir, nil
}

// awaitGuest waits until the guest runs and each of its interfaces that is told an address has it.
func awaitGuest(ctx context.Context, dir string, vm model.VM) error {
	for {
		st, found, err := launch.Read(dir)
		if err != nil {
			return err
		}
		said, _ := os.ReadFile(qemu.ConsoleLog(dir))
		if found && st.Phase == launch.Running && (len(vm.Interfaces) == 0 || leased(st, string(said))) {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return model.Faultf(
					model.CodeTryAgain, "machines are emulated: give them a quieter machine, or leave them out with --machines=false",
					"its guest has no address after %v", bootLimit)
			}
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// leased tells whether a guest's first interface has what its pod has. A guest bound by a bridge is told no IPv6
// address.
func leased(st launch.Status, said string) bool {
	for _, ip := range st.Interfaces[0].IPs {
		word := "weft-guest: LEASE "
		if strings.Contains(ip, ":") {
			word = "weft-guest: LEASE6 "
		}
		if !strings.Contains(said, word) {
			return false
		}
	}
	return true
}
