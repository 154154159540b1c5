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
	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plural"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// VMs returns the directory of a node's VMs.
func (d Dir) VMs(node string) string { return d.Node(node, "machines") } // glossary: the directory's name stays

// labVM is a VM of the manifests.
type labVM struct {
	manifest.Launch
	raw  []byte
	node string
}

// IsVM reports whether an object is a VM of KubeVirt.
func IsVM(o store.Object) bool {
	return o.Key.Group == "kubevirt.io" && (o.Key.Kind == "VirtualMachineInstance" || o.Key.Kind == "VirtualMachine")
}

// createVMPods reads the VMs of the store and adds their pods.
func createVMPods(ctx context.Context, s *dir.Store) ([]labVM, error) {
	objects, err := s.List("")
	if err != nil {
		return nil, err
	}
	var out []labVM
	for _, o := range objects {
		if !IsVM(o) {
			continue
		}
		l, err := manifest.ReadLaunch(o.Raw, manifest.Options{})
		var f *model.Error
		if errors.As(err, &f) {
			err = &model.Error{Code: f.Code, Msg: fmt.Sprintf("VM %s: %s", o.Key.Name, f.Msg), Hint: f.Hint, Err: f}
		}
		if err != nil {
			return nil, err
		}
		text, err := launch.PodManifest(l, []string{"sleep", "infinity"})
		if err != nil {
			return nil, err
		}
		pod, err := store.NewObject(text)
		if err == nil {
			_, err = s.Create(ctx, pod)
		}
		if err != nil {
			return nil, fmt.Errorf("pod of VM %s: %w", l.VM.Key(), err)
		}
		out = append(out, labVM{Launch: l, raw: o.Raw})
	}
	return out, nil
}

// deleteVMs deletes the VMs of the store, which would be started otherwise.
func deleteVMs(ctx context.Context, s *dir.Store) error {
	objects, err := s.List("")
	if err != nil {
		return err
	}
	for _, o := range objects {
		if !IsVM(o) {
			continue
		}
		if err := s.Delete(ctx, o.Key, ""); err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
	}
	return nil
}

// setNode sets the VM's node to the one of its pod.
func (m *labVM) setNode(pods []model.Pod) {
	for _, p := range pods {
		if p.Namespace == m.VM.Namespace && p.Name == launch.PodName(m.VM.Name) {
			m.node = p.Node
		}
	}
}

const (
	// bootTimeout bounds the boot of the VMs, which is slow with emulation on a busy host.
	bootTimeout = 3 * time.Minute
	// parallelBoots is the number of VMs that boot in parallel.
	parallelBoots = 2
)

// runVMs starts the VMs in their pods and waits until their guests have addresses. A VM that fails is an error, or with
// KeepGoing one of the failures; those on nodes that have failed are not tried.
func (u Up) runVMs(ctx context.Context, vms []labVM, died func(error), failed *failures) error {
	if len(vms) == 0 {
		return nil
	}
	u.Logf("booting %s (no disks: weft's own small guest)", plural.Count(len(vms), "VM", "VMs"))
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelBoots)
	for _, m := range vms {
		group.Go(func() error {
			if !u.KeepGoing {
				if err := u.runVM(gctx, m, died); err != nil {
					return fmt.Errorf("VM %s on %s: %w", m.VM.Key(), m.node, err)
				}
				return nil
			}
			err := errNodeFailed
			if !failed.nodes[m.node] {
				booting, vmDied := context.WithCancelCause(gctx)
				defer vmDied(nil)
				if err = u.runVM(booting, m, func(err error) { vmDied(err) }); err == nil || ctx.Err() != nil {
					return err
				}
				err = cause(ctx, booting, err)
			}
			u.Logf("failed: VM %s on %s: %v", m.VM.Key(), m.node, err)
			hint := fmt.Sprintf("see the VM's log in %s", u.Dir.VMs(m.node))
			return failed.add(incomplete(hint, "VM %s on %s: %v", m.VM.Key(), m.node, err))
		})
	}
	return group.Wait()
}

// errNodeFailed is the error of a VM that is not tried.
var errNodeFailed = errors.New("its node has failed")

func (u Up) runVM(ctx context.Context, m labVM, died func(error)) error {
	pod, err := u.Dir.Sandboxes(m.node).Get(ctx, m.VM.Namespace, launch.PodName(m.VM.Name))
	if err != nil {
		return err
	}
	vmDir, err := u.startVM(m, pod.Pod, died)
	if err != nil {
		return err
	}
	if err := awaitGuest(ctx, vmDir, m.VM); err != nil {
		return err
	}
	s, err := dir.Open(u.Dir.Store())
	if err != nil {
		return err
	}
	return setVMRunning(ctx, s, m)
}

// startVM starts a VM in its pod with `weft vm run` and additional arguments, and returns the VM's directory.
func (u Up) startVM(m labVM, pod sandbox.Pod, died func(error), args ...string) (dir string, err error) {
	at := u.Dir.VMs(m.node)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", u.Dir.unwritable(err)
	}
	dir = launch.VMDir(at, m.VM.Key())
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
	}, args...)
	cmd := exec.Command(u.Self, append(argv, dir+".yaml")...)
	cmd.Dir, cmd.Env = "/", append([]string{teardown.Variable + "=" + string(u.Dir)}, u.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		return "", err
	}
	go func() {
		err := cmd.Wait()
		died(fmt.Errorf("VM %s on %s exited (%s): %s", m.VM.Key(), m.node, cmd.ProcessState, logTail(dir+".log", err)))
	}()
	return dir, nil
}

// awaitGuest waits until the guest runs and has its leases.
func awaitGuest(ctx context.Context, dir string, vm model.VM) error {
	for {
		st, found, err := launch.Read(dir)
		if err != nil {
			return err
		}
		log, _ := os.ReadFile(qemu.ConsoleLog(dir))
		if found && st.Phase == launch.Running && (len(vm.Interfaces) == 0 || hasLeases(st, string(log))) {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return model.Errorf(
					model.CodeTryAgain, "VMs are emulated: use a host with less load, or skip them with --machines=false", // glossary: a flag
					"the guest has no address after %v", bootTimeout)
			}
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hasLeases reports whether a guest has a lease for each address of its first interface. With bridge binding, a guest gets
// no IPv6 address.
func hasLeases(st launch.Status, consoleLog string) bool {
	for _, ip := range st.Interfaces[0].IPs {
		marker := "weft-guest: LEASE "
		if strings.Contains(ip, ":") {
			marker = "weft-guest: LEASE6 "
		}
		if !strings.Contains(consoleLog, marker) {
			return false
		}
	}
	return true
}
