// SPDX-License-Identifier: Apache-2.0

package machines

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

// byAgent is the node's network as its agent makes it: pods are routed.
const byAgent = `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"weft-cni","socket":"%[1]s/agent.sock","delegates":[
	{"type":"calico","ipam":{"type":"host-local","dataDir":"%[1]s/ipam","ranges":[[{"subnet":"10.50.0.0/24"}]]}}]}]}`

// agent starts a node's agent by hand. Kill ends it as SIGKILL does.
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
		_, _ = w.try("vm", "stop", "--all", "--force", "--dir", at("vms")) // by its help
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

// TestRunByAgent: a node's agent that somebody has started gives the pod its network and the guest the pod's; the
// machine does without the agent while that is away, and is stopped by its help.
func TestRunByAgent(t *testing.T) {
	w := newWorld(t)
	w.write("net.d/pods.conflist", fmt.Sprintf(byAgent, w.dir))
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
	if out, err := w.runBy("agent.sock", "binding: {name: weft-direct}"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st := w.status()
	if st.Phase != launch.Running || len(st.Interfaces) != 1 || st.Interfaces[0].IP != "10.50.0.2" {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "records")); err == nil {
		t.Error("what was made in the pod is remembered by the command, not by the agent")
	}
	w.said(st.Dir, "weft-guest: LEASE eth0 10.50.0.2/32 ")
	nettest.Run(t, nil, "ping", "-c", "1", "-W", "20", "10.50.0.2")
	kill()
	nettest.Run(t, nil, "ping", "-c", "1", "-W", "20", "10.50.0.2")
	w.agent()
	if out := w.weft("vm", "stop", "--dir", w.dir+"/vms", "shop/web"); !strings.HasSuffix(out,
		"machine shop/web stopped\n") {
		t.Errorf("%s", out)
	}
	del()
	w.gone()
}

// said waits until a guest has said something.
func (w *world) said(dir, text string) {
	w.t.Helper()
	for deadline := time.Now().Add(150 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		b, _ := os.ReadFile(qemu.ConsoleLog(dir))
		if strings.Contains(string(b), text) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the guest has not said %q: %s", text, b)
		}
	}
}
