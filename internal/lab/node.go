// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/teardown"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox"
	"github.com/weft-net/weft/internal/sandbox/process"
)

// metricsAddress is the default address of an agent's metrics and allocations, in its node's namespace.
const metricsAddress = "127.0.0.1:9119"

// The processes of a node.
const (
	roleAgent   = "agent"
	roleSandbox = "sandbox"
	// roleSpeaker is the BGP speaker of nodes and routers in a lab with a fabric.
	roleSpeaker = "bgp"
)

func roles() []string { return []string{roleAgent, roleSandbox} }

// linkPlugins creates the CNI binary directory.
func (u Up) linkPlugins() error {
	if err := os.MkdirAll(u.Dir.Bin(), 0o755); err != nil {
		return u.Dir.unwritable(err)
	}
	have := map[string]bool{}
	for _, dir := range u.BinDirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return model.Errorf(model.CodeIO, "run `make build`, or choose a CNI binary directory with --cni-bin-dir",
				"CNI binary directory %q: %w", dir, withoutPath(err))
		}
		dir, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			err := os.Symlink(filepath.Join(dir, e.Name()), filepath.Join(u.Dir.Bin(), e.Name()))
			if err != nil && !errors.Is(err, os.ErrExist) {
				return u.Dir.unwritable(err)
			}
			have[e.Name()] = true
		}
	}
	for _, name := range []string{"weft-cni", "loopback"} {
		if !have[name] {
			return model.Errorf(model.CodeIO, "run `make build`, or choose a directory that has it with --cni-bin-dir",
				"CNI plugin %q not found in %s", name, strings.Join(u.BinDirs, ", "))
		}
	}
	return nil
}

// conflist returns a node's network configuration for the agent: the plugin of the design, and portmap.
func (d Dir) conflist(s layout.Spec, n layout.Node) ([]byte, error) {
	type object = map[string]any
	link := s.Plugin(n, d.Node(n.Name, "ipam"))
	if mtu := s.PodMTU(); mtu != 0 {
		link["mtu"] = mtu
	}
	plugins := []any{
		link,
		object{"type": "portmap", "capabilities": object{"portMappings": true}},
	}
	capabilities := object{"io.kubernetes.cri.pod-annotations": true, "portMappings": true}
	const version = "1.0.0"
	return json.MarshalIndent(object{
		"cniVersion": version, "name": "weft",
		"plugins": []any{object{
			"type": "weft-cni", "socket": d.AgentSocket(n.Name), "capabilities": capabilities,
			"delegates": []any{object{"cniVersion": version, "name": "pods", "plugins": plugins}},
		}},
	}, "", "  ")
}

// AgentSocket returns the path of the agent's socket on a node.
func (d Dir) AgentSocket(node string) string { return d.Node(node, "agent", "agent.sock") }

// agentConfig returns the path of the configuration of a node's agent, beyond its flags.
func (d Dir) agentConfig(node string) string { return d.Node(node, "weft.yaml") }

// StartNode writes a node's configuration and starts its processes. It calls died when one of them exits.
func (u Up) StartNode(ctx context.Context, n layout.Node, died func(error)) error {
	for _, dir := range []string{"net.d", "cache", "agent", "sandbox", "logs"} {
		if err := os.MkdirAll(u.Dir.Node(n.Name, dir), 0o755); err != nil {
			return u.Dir.unwritable(err)
		}
	}
	conf, err := u.Dir.conflist(u.Spec, n)
	if err != nil {
		return err
	}
	if err := os.WriteFile(u.Dir.Node(n.Name, "net.d", "10-weft.conflist"), append(conf, '\n'), 0o644); err != nil {
		return u.Dir.unwritable(err)
	}
	if text := u.agentFile(n.Name); text != "" {
		if err := os.WriteFile(u.Dir.agentConfig(n.Name), []byte(text), 0o644); err != nil {
			return u.Dir.unwritable(err)
		}
	}
	for _, role := range roles() {
		if err := u.startRole(ctx, n, role, died); err != nil {
			return err
		}
	}
	return nil
}

// agentFile returns the text of the configuration of a node's agent, empty for none.
func (u Up) agentFile(node string) string {
	text := ""
	if u.Spec.Observe != "" {
		text += fmt.Sprintf("observe: {level: %q}\n", u.Spec.Observe)
	}
	if u.Spec.Fabric != "" {
		text += fmt.Sprintf("bgp: {socket: %q}\n", u.Dir.speakerSocket(node))
	}
	return text
}

func (u Up) command(n layout.Node, role string) []string {
	at := func(elem ...string) string { return u.Dir.Node(n.Name, elem...) }
	if role == roleAgent {
		argv := []string{
			u.Agent, "agent", "--node", n.Name, "--socket", u.Dir.AgentSocket(n.Name),
			"--state-dir", at("agent"), "--store-dir", u.Dir.Store(),
			"--address-dir", at("ipam"), "--encapsulation", u.backend(),
			"--metrics-address", metricsAddress, "--wireguard-key-file", at("agent", "wireguard.key"), "--addresses",
			cmp.Or(u.Spec.Addresses, "podCIDRs"),
		}
		if u.agentFile(n.Name) != "" {
			argv = append(argv, "--config", u.Dir.agentConfig(n.Name))
		}
		return argv
	}
	argv := []string{
		u.Self, "sandbox", "serve", "--node", n.Name, "--state-dir", u.Dir.sandboxDir(n.Name),
		"--cni-conf-dir", at("net.d"), "--cni-bin-dir", u.Dir.Bin(), "--cni-cache-dir", at("cache"), "--log-dir", at("logs"),
		"--lab", string(u.Dir),
	}
	for _, p := range n.PodCIDRs {
		argv = append(argv, "--pod-cidr", p.String())
	}
	return argv
}

// backend returns the agents' backend between nodes.
func (u Up) backend() string {
	if u.Spec.Fabric != "" {
		return "bgp"
	}
	return cmp.Or(u.Spec.Encapsulation, "host-gw")
}

// startProcess starts a process that survives this one.
func (u Up) startProcess(ns *netns.NS, node, role string, argv []string, died func(error)) error {
	logPath := u.Dir.Node(node, role+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return u.Dir.unwritable(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(argv[0], argv[1:]...)
	// The standalone plugins that the runtime executes (loopback) also have their journal in the lab.
	cmd.Dir, cmd.Env = "/",
		append([]string{teardown.Variable + "=" + string(u.Dir), "WEFT_JOURNAL_DIR=" + u.Dir.Node(node, "journal")}, u.Env...)
	if role == roleAgent {
		cmd.Env = append(cmd.Env, u.AgentEnv...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(cmd.Start); err != nil {
		return err
	}
	p, ok := process.Read(cmd.Process.Pid)
	go func() {
		err := cmd.Wait()
		died(fmt.Errorf("node %s: %s exited (%s): %s", node, role, cmd.ProcessState, logTail(logPath, err)))
	}()
	if !ok {
		return nil // it exited already; died gets the error
	}
	return process.WriteJSON(u.Dir.pidFile(node, role), p)
}

// awaitListener waits until a process listens at the socket.
func awaitListener(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not listening: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// logTail returns the last lines of a process's log, which is removed with the lab.
func logTail(path string, err error) string {
	b, _ := os.ReadFile(path)
	if len(b) == 0 {
		return fmt.Sprintf("empty log, %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], " / ")
}

// socket returns the path of the socket of a node's process.
func (d Dir) socket(node, role string) string {
	if role == roleAgent {
		return d.AgentSocket(node)
	}
	return sandbox.Socket(d.sandboxDir(node))
}

func (d Dir) pidFile(node, role string) string { return d.Node(node, role+".pid") }

// running reports whether a process of a node is running.
func (d Dir) running(node, role string) bool {
	var p process.ID
	return process.ReadJSON(d.pidFile(node, role), &p) == nil && p.Alive()
}

// processState returns whether a process of a node or router is running, or dead.
func processState(d Dir, node, role string) string {
	if d.running(node, role) {
		return Running
	}
	return procDead
}
