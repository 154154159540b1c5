// SPDX-License-Identifier: Apache-2.0

package vmrun

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// agentConf is the configuration of the agent's network: pods are routed.
const agentConf = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"weft-cni","socket":"%[1]s/agent.sock","delegates":[
	{"type":"calico","ipam":{"type":"host-local","dataDir":"%[1]s/ipam","ranges":[[{"subnet":"10.50.0.0/24"}]]}}]}]}`

// agent starts a node's agent. kill sends SIGKILL to it.
func (w *world) agent() (kill func()) {
	w.t.Helper()
	at := func(name string) string { return filepath.Join(w.dir, name) }
	if err := os.Remove(at("ready")); err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	log, err := os.OpenFile(at("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(w.bin, "weft-agent"), "agent", "--node", "here", "--socket", at("agent.sock"),
		"--state-dir", at("agent"),
		"--address-dir", at("addresses"), "--ready-file", at("ready"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	_ = log.Close()
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	w.t.Cleanup(func() {
		_, _ = w.try("vm", "stop", "--all", "--force", "--dir", at("vms")) // with the agent
		kill()
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(at("ready")); err == nil {
			return kill
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(at("agent.log"))
			w.t.Fatalf("the agent is not ready: %s", b)
		}
	}
}

// TestRunWithAgent: a running agent sets up the pod's network and the guest's; the VM works while the agent is stopped,
// and is stopped with the agent.
func TestRunWithAgent(t *testing.T) {
	w := newWorld(t)
	w.write("net.d/pods.conflist", fmt.Sprintf(agentConf, w.dir))
	for _, line := range []string{
		"link set lo up", "link add uplink type veth peer name wire", "link set uplink up", "link set wire up",
		"addr add 192.168.7.2/24 dev uplink",
		"route add default via 192.168.7.1",
	} {
		nettest.Run(t, nil, append([]string{"ip"}, strings.Fields(line)...)...)
	}
	del := func() { _, _ = nettest.Try(nil, "ip", "link", "del", "uplink") }
	t.Cleanup(del)
	kill := w.agent()
	if out, err := w.runWithAgent("agent.sock", "binding: {name: weft-direct}"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st := w.status()
	if st.Phase != launch.Running || len(st.Interfaces) != 1 || st.Interfaces[0].IP != "10.50.0.2" {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "records")); err == nil {
		t.Error("the command, not the agent, has the record of the pod's network")
	}
	w.awaitConsole(st.Dir, "weft-guest: LEASE eth0 10.50.0.2/32 ")
	nettest.Run(t, nil, "ping", "-c", "1", "-W", "20", "10.50.0.2")
	kill()
	nettest.Run(t, nil, "ping", "-c", "1", "-W", "20", "10.50.0.2")
	w.agent()
	if out := w.weft("vm", "stop", "--dir", w.dir+"/vms", "shop/web"); !strings.HasSuffix(out,
		"VM shop/web stopped\n") {
		t.Errorf("%s", out)
	}
	del()
	w.expectNothingLeft()
}

// awaitConsole waits until a guest prints a text to its console.
func (w *world) awaitConsole(dir, text string) {
	w.t.Helper()
	for deadline := time.Now().Add(150 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		b, _ := os.ReadFile(qemu.ConsoleLog(dir))
		if strings.Contains(string(b), text) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the guest has not printed %q: %s", text, b)
		}
	}
}
