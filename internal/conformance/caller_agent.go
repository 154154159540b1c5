// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// shimName is the CNI plugin that forwards calls to the agent, agentName the agent. They are in weft's directory.
const shimName, agentName = "weft-cni", "weft-agent"

// agentCaller is weft's agent, which executes delegates that are not built in. The kit is the runtime that calls it.
func agentCaller() caller {
	list := "the runtime that calls the agent reads the list"
	c := caller{
		name: "weft agent", start: startAgent, call: callAgent,
		notApplicable: map[int]string{
			3: list, 4: list, 5: list, 6: list, 7: list, 8: list, 9: list, 38: list,
			49: "the agent makes the requested calls (items 63, 65)",
			52: "the runtime owns the namespace", 59: "the runtime owns the namespace",
		},
	}
	own := []runtimeCheck{
		{23, secondAdd},
		{37, unknownCheck},
		{53, serializedPerContainer},
		{54, gcExclusive},
		{56, failedAddCleanedUp},
		{58, recordedConfiguration},
	}
	for _, t := range slices.Concat(own, configChecks(), callChecks(), orderChecks(), inputChecks()) {
		replaced := slices.ContainsFunc(c.checks, func(o runtimeCheck) bool { return o.item == t.item })
		if c.notApplicable[t.item] == "" && !replaced {
			c.checks = append(c.checks, t)
		}
	}
	return c
}

func (b *testbed) agentSocket() string { return filepath.Join(b.dir, "agent.sock") }

// startAgent starts the agent and waits until it accepts connections.
func startAgent(b *testbed) error {
	const timeout, pause = 10 * time.Second, 10 * time.Millisecond
	var log limitedBuffer
	cmd := exec.Command(filepath.Join(filepath.Dir(b.weft), agentName), "agent", "--node", "kit", "--socket",
		b.agentSocket(), "--state-dir", filepath.Join(b.dir, "agent"))
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &log, &log, "/", waitDelay
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.host.Do(cmd.Start); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	b.cleanups = append(b.cleanups, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	})
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(pause) {
		if c, err := net.Dial("unix", b.agentSocket()); err == nil {
			return c.Close()
		}
		select {
		case err := <-done:
			done <- err
			return fmt.Errorf("agent: exits with %w: %s", err, short(log.String()))
		default:
		}
	}
	return errors.New("agent: no connection to its socket")
}

// callAgent executes weft-cni as a runtime does, with the list as its delegate.
func callAgent(b *testbed, verb string, list map[string]any, flags []string) response {
	env := map[string]string{"CNI_COMMAND": strings.ToUpper(verb), "CNI_PATH": b.rec.bin()}
	conf := map[string]any{
		"cniVersion": "1.1.0", "name": list["name"], "type": shimName, "socket": b.agentSocket(), "delegates": []any{list},
	}
	flag := map[string]string{"--container-id": testbedID, "--ifname": testbedIfName}
	for i := 0; i+1 < len(flags); i += 2 {
		flag[flags[i]] = flags[i+1]
	}
	key := flag["--container-id"] + "/" + flag["--ifname"]
	switch verb {
	case "gc":
		valid := []any{}
		if id, ifName, ok := strings.Cut(flag["--valid"], "/"); ok {
			valid = append(valid, map[string]any{"containerID": id, "ifname": ifName})
		}
		conf["cni.dev/valid-attachments"] = valid
	case "add", "check", "del":
		env["CNI_CONTAINERID"], env["CNI_IFNAME"], env["CNI_NETNS"] = flag["--container-id"], flag["--ifname"], b.pod.Path()
		env["CNI_ARGS"] = flag["--cni-args"]
		if caps := flag["--capability-args"]; caps != "" {
			conf["runtimeConfig"] = json.RawMessage(caps)
		}
		if prev := b.result(key); verb != "add" && prev != nil {
			conf["prevResult"] = prev
		}
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return response{verb: strings.ToUpper(verb), exit: -1, err: err}
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(b.weft), shimName))
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	a := b.execute(verb, cmd, stdin)
	if verb == "add" && a.ok() {
		b.mu.Lock()
		b.results[key] = a.stdout
		b.mu.Unlock()
	}
	return a
}

func (b *testbed) result(key string) json.RawMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.results[key]
}
