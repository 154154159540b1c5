// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/qemu"
)

const tapVM = `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: vm1, namespace: shop}
spec:
  domain: {devices: {interfaces: [{name: default, binding: {name: weft-direct}}]}}
  networks: [{name: default, pod: {}}]
`

// bootTime limits the boot of an emulated guest.
const bootTime = 150 * time.Second

// TestHostTapBoot: a real guest on a tap on the node, which QEMU in the pod gets as an open file, has its lease, routes
// and MTU, and speaks TCP with the node both ways. After its end the pod is unchanged.
func TestHostTapBoot(t *testing.T) {
	nettest.EndToEnd(t)
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		nettest.SkipMissing(t, "there is no qemu-system-x86_64")
	}
	nettest.Need(t, "tap")
	w := newWorld(t)
	nettest.Run(t, w.node, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo") // the guest's peer
	w.start()
	before := w.host()
	list, ns := w.list(
		"1.1.0", fmt.Sprintf(`{"plugins":[{"type":"calico","mtu":1400,"host_tap":{},"ipam":%s}]}`, w.ipam("10.9.0.0/16")),
	), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.log())
	}
	was := inPod(t, ns)
	console := w.boots("--netns", ns.Path())
	ctx, cancel := context.WithTimeout(t.Context(), bootTime)
	defer cancel()
	does := func(command string) string {
		t.Helper()
		out, err := console.Run(ctx, command)
		if err != nil {
			t.Fatalf("%v\n%s", err, w.log())
		}
		return out
	}
	lease, err := console.Await(ctx, "weft-guest: LEASE eth0 ")
	if err != nil || !strings.HasPrefix(lease, "weft-guest: LEASE eth0 10.9.0.2/32 router=169.254.1.1 mtu=1400 ") {
		t.Fatalf("%s: %v\n%s", lease, err, w.log())
	}
	facts := does("facts")
	for _, want := range []string{
		"LINK eth0 mac=" + r.Interfaces[1].Mac + " mtu=1400 carrier=1", "ROUTE inet default via 169.254.1.1 dev eth0",
		"ROUTE inet 169.254.1.1 dev eth0 scope link",
	} {
		if !strings.Contains(facts, "weft-guest: "+want) {
			t.Errorf("the guest lacks %q:\n%s", want, facts)
		}
	}
	does("ping -c 1 -W 20 192.0.2.1")
	does("answer 80 guest")
	if said := w.calls(ctx, "10.9.0.2:80"); said != "guest hello" {
		t.Errorf("the guest answered %q", said)
	}
	w.answers("192.0.2.1:90")
	if said := does("send 192.0.2.1 90 hello"); strings.TrimSpace(said) != "node hello" {
		t.Errorf("the guest was answered %q", said)
	}
	console.Close()
	w.weft("vm", "stop", "shop/vm1", "--dir", w.path("machines"))
	if is := inPod(t, ns); is != was {
		t.Errorf("the pod was\n%s\nand is\n%s", was, is)
	}
	if err := w.del(list, "c1", ns); err != nil {
		t.Fatal(err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

// boots runs a VM on the node, by the agent, and returns its console.
func (w *world) boots(args ...string) *qemu.Console {
	w.t.Helper()
	file, dir := w.path("vm.yaml"), w.path("machines")
	if err := os.WriteFile(file, []byte(tapVM), 0o600); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"),
		append([]string{"vm", "run", "--dir", dir, "--agent-socket", w.socket(), file}, args...)...)
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := w.node.Do(cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // one that has been stopped is gone already
		select {
		case <-done:
		case <-time.After(bootTime):
			_ = cmd.Process.Kill()
			w.t.Error("the machine does not end")
		}
	})
	at := launch.VMDir(dir, "shop/vm1")
	for until := time.Now().Add(bootTime); ; time.Sleep(20 * time.Millisecond) {
		if st, found, _ := launch.Read(at); found && st.Phase == launch.Running {
			break
		}
		select {
		case err := <-done:
			done <- err
			if strings.Contains(log.String(), "guest image") {
				nettest.SkipMissing(w.t, log.String())
			}
			w.t.Fatalf("%v: %s\n%s", err, log, w.log())
		default:
		}
		if time.Now().After(until) {
			w.t.Fatalf("the machine does not run: %s", w.log())
		}
	}
	c, err := qemu.OpenConsole(w.t.Context(), at)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// weft runs weft on the node.
func (w *world) weft(args ...string) {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := w.node.Do(cmd.Run); err != nil {
		w.t.Fatalf("weft %v: %v\n%s", args, err, &out)
	}
}

// calls sends hello to an address from the node until there is a response.
func (w *world) calls(ctx context.Context, addr string) (said string) {
	w.t.Helper()
	for ctx.Err() == nil {
		var conn net.Conn
		err := w.node.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", addr)
			return err
		})
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = fmt.Fprintln(conn, "hello")
			said, err = bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
		}
		if err == nil {
			return strings.TrimSpace(said)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ""
}

// answers responds to a connection to the node.
func (w *world) answers(addr string) {
	w.t.Helper()
	var l net.Listener
	err := w.node.Do(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_, _ = fmt.Fprint(conn, "node "+line)
		_ = conn.Close()
	}()
}
