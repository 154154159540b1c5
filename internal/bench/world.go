// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// Impl is an implementation of the chain.
type Impl struct {
	Name   string
	BinDir string
	// Agent is the program to run as node agent; empty for standalone plugins.
	Agent string
	Peer  bool
	// Floor is set for a floor; see WithFloors. Program, which may be empty, is executed in the place of each plugin.
	Floor   bool
	Program string
}

// world is the node of one implementation.
type world struct {
	impl  Impl
	node  *netns.NS
	exec  *runner
	cni   *libcni.CNIConfig
	lists []*libcni.NetworkConfigList // one per CNI call for a pod
	agent *exec.Cmd
	floor *floor // the agent of FloorAgent
	log   *bytes.Buffer

	extra int     // additional networks per pod
	park  *fdPark // namespaces of the pods that stay until the world is closed

	mu     sync.Mutex
	serial int // of container IDs
	pods   int
}

// newWorld creates the node of one implementation: dir is on the node's disk, volatile is its /run.
func newWorld(ctx context.Context, impl Impl, chain Chain, dir, volatile string) (*world, error) {
	dir, volatile = filepath.Join(dir, impl.Name), filepath.Join(volatile, impl.Name)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(volatile, 0o755)); err != nil {
		return nil, fmt.Errorf("world %s: %w", impl.Name, err)
	}
	impl, err := impl.copied(dir)
	if err != nil {
		return nil, fmt.Errorf("world %s: %w", impl.Name, err)
	}
	node, err := netns.Anonymous()
	if err != nil {
		return nil, fmt.Errorf("world %s: %w", impl.Name, err)
	}
	park, err := newFDPark()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("world %s: %w", impl.Name, err), node.Close())
	}
	w := &world{
		impl: impl, node: node, exec: &runner{node: node, volatile: filepath.Join(volatile, "journal"), program: impl.Program},
		log: &bytes.Buffer{}, park: park,
	}
	w.cni = libcni.NewCNIConfigWithCacheDir([]string{impl.BinDir}, filepath.Join(dir, "cache"), w.exec)
	if err = w.prepare(ctx, chain, dir, volatile); err != nil {
		w.close()
		return nil, fmt.Errorf("world %s: %w", impl.Name, err)
	}
	return w, nil
}

// prepare creates the world's networks and starts the agent if the implementation has one.
func (w *world) prepare(ctx context.Context, chain Chain, dir, volatile string) error {
	w.extra = chain.extra
	if w.extra > 0 {
		if err := w.addUplink(); err != nil {
			return err
		}
	}
	texts, err := chain.lists(dir)
	if w.impl.Agent != "" || w.impl.Floor && w.impl.Program == "" {
		socket := filepath.Join(volatile, "agent.sock")
		var text []byte
		if text, err = chain.agentList(dir, socket); err == nil {
			if w.impl.Floor {
				w.floor, err = startFloor(ctx, w.node, chain, socket)
			} else {
				err = w.startAgent(ctx, volatile, socket)
			}
		}
		texts = [][]byte{text}
	}
	for _, text := range texts {
		if err != nil {
			return err
		}
		var list *libcni.NetworkConfigList
		list, err = libcni.NetworkConfFromBytes(text)
		w.lists = append(w.lists, list)
	}
	return err
}

// withNetworks returns the cell with the world's number of additional networks.
func (w *world) withNetworks(cell Cell) Cell {
	cell.Networks = w.extra
	return cell
}

func (w *world) startAgent(ctx context.Context, volatile, socket string) error {
	w.agent = exec.Command(w.impl.Agent, "agent", "--node", "bench", "--socket", socket, "--state-dir",
		filepath.Join(volatile, "state"))
	w.agent.Stdout, w.agent.Stderr = w.log, w.log

	w.agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.node.Do(w.agent.Start); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) &&
		ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if st, err := os.Stat(socket); err == nil && st.Mode()&os.ModeSocket != 0 {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("agent: no socket at %s after 10 s: %s", socket, w.log.String()), ctx.Err())
}

func (w *world) close() {
	if w.floor != nil {
		w.floor.close()
	}
	if w.agent != nil && w.agent.Process != nil {
		_ = w.agent.Process.Signal(syscall.SIGTERM)
		stop := time.AfterFunc(5*time.Second, func() { _ = w.agent.Process.Kill() })
		_ = w.agent.Wait()
		stop.Stop()
	}
	w.park.close()
	_ = w.node.Close()
}

// nextID returns a new container ID.
func (w *world) nextID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	return fmt.Sprintf("bench%06d", w.serial)
}

// nextPod returns the serial number of the next pod.
func (w *world) nextPod() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods++
	return w.pods
}

// cpuTime returns the CPU time used so far by this implementation's processes.
func (w *world) cpuTime() time.Duration {
	total := w.exec.cpuTime()
	if w.agent == nil {
		return total
	}
	// clock_getcpuclockid(3): the CPU clock of another process includes exited threads.
	clock := int32(^w.agent.Process.Pid<<3 | 2)
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) == nil {
		total += time.Duration(ts.Nano())
	}
	return total
}

// agentKB returns a memory field of the agent's /proc/PID/status, in KiB.
func (w *world) agentKB(field string) (float64, bool) {
	if w.agent == nil {
		return 0, false
	}
	return statusKB(fmt.Sprintf("/proc/%d", w.agent.Process.Pid), field)
}

// pod is one sandbox: an anonymous network namespace.
type pod struct {
	ns *netns.NS
	rt *libcni.RuntimeConf
}

func (w *world) newPod() (*pod, error) {
	ns, err := netns.Anonymous()
	if err != nil {
		return nil, fmt.Errorf("pod: %w", err)
	}
	return &pod{ns: ns, rt: &libcni.RuntimeConf{
		NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), IfName: "eth0",
		CapabilityArgs: capabilityArgs(w.nextPod()),
	}}, nil
}

func (w *world) add(ctx context.Context, p *pod, id string) (time.Duration, error) {
	p.rt.ContainerID = id
	start := time.Now()
	for i, list := range w.lists {
		if _, err := w.cni.AddNetworkList(ctx, list, p.runtimeConf(i)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (w *world) check(ctx context.Context, p *pod) (time.Duration, error) {
	start := time.Now()
	for i, list := range w.lists {
		if err := w.cni.CheckNetworkList(ctx, list, p.runtimeConf(i)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

func (w *world) del(ctx context.Context, p *pod) (time.Duration, error) {
	start := time.Now()
	for i, list := range slices.Backward(w.lists) {
		if err := w.cni.DelNetworkList(ctx, list, p.runtimeConf(i)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// runtimeConf returns the runtime configuration of the pod's network i.
func (p *pod) runtimeConf(i int) *libcni.RuntimeConf {
	if i == 0 {
		return p.rt
	}
	rt := *p.rt
	rt.IfName = fmt.Sprint("net", i)
	return &rt
}
