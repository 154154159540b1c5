// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/weft-net/weft/internal/apitest"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// The environment of a test's program that is to be a daemon: its flags, at which step it is killed, what it makes when
// ready.
const (
	childFlags, childStep, childReady = "WEFT_FLANNELD_FLAGS", "WEFT_FLANNELD_STEP", "WEFT_FLANNELD_READY"
)

const limit = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(childFlags) != "" {
		os.Exit(child())
	}
	os.Exit(nettest.Main(m))
}

// child is a daemon that is killed when it has done so many steps.
func child() int {
	var o Options
	if err := NewFlags(&o).Parse(strings.Fields(os.Getenv(childFlags))); err != nil {
		return 2
	}
	left, err := strconv.Atoi(os.Getenv(childStep))
	if err != nil {
		left = 1 << 30
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = Run(ctx, Config{
		Options: o, Getenv: os.Getenv, Version: "test", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now,
		After:  time.After,
		Random: func(int) int { return 0 }, Entropy: rand.Reader,
		Ready: func() { _ = os.WriteFile(os.Getenv(childReady), nil, 0o600) },
		Failpoint: func(name string) error {
			if left--; left == 0 {
				fmt.Fprintln(os.Stderr, "killed at", name)
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hostNS is a node of which nothing is known yet.
func hostNS(t *testing.T, hub *netns.NS, num int) *netns.NS {
	t.Helper()
	ns := nettest.NS(t, fmt.Sprint("node", num))
	port := fmt.Sprint("p", num)
	for _, line := range []string{
		"link add " + port + " type veth peer name eth0 address 02:00:00:00:00:01 netns " + ns.Path(),
		"link set " + port + " master br0 up",
	} {
		nettest.IP(t, hub, line)
	}
	t.Cleanup(func() { _, _ = nettest.Try(hub, "ip", "link", "del", port) })
	for _, line := range []string{
		"link set lo up", "link set eth0 up", "addr add 192.168.7.1/24 dev eth0", "route add default via 192.168.7.100",
	} {
		nettest.IP(t, ns, line)
	}
	return ns
}

// stateOf returns everything that a daemon creates on its node.
func stateOf(t *testing.T, ns *netns.NS, subnetFile string) string {
	t.Helper()
	var b strings.Builder
	for _, command := range []string{
		"ip route", "ip -o addr show dev flannel.1", "ip -o -d link show dev flannel.1", "ip neigh show dev flannel.1",
		"bridge fdb show dev flannel.1", "iptables-save -t nat", "iptables-save -t filter", "nft list tables",
	} {
		lines := strings.SplitAfter(nettest.Run(t, ns, strings.Fields(command)...), "\n")
		if !strings.HasPrefix(command, "iptables") { // the order of rules counts, that of all else is chance
			slices.Sort(lines)
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "#") {
				b.WriteString(line)
			}
		}
	}
	file, err := os.ReadFile(subnetFile)
	if err != nil {
		t.Fatal(err)
	}
	// Numbers of devices, counters and the kernel's own addresses are none of a daemon's.
	changing := regexp.MustCompile(`(?m)^\d+: |\[\d+:\d+\]|.*inet6 fe80.*\n| numtxqueues.*$`)
	return changing.ReplaceAllString(b.String(), "") + string(file)
}

// TestKilled: a daemon that is killed at any step leaves nothing that the next one does not bring to where one that was
// never killed does.
func TestKilled(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	hub := nettest.NS(t, "hub")
	for _, line := range []string{
		"link set lo up", "link add br0 type bridge", "link set br0 up", "addr add 192.168.7.100/24 dev br0",
	} {
		nettest.IP(t, hub, line)
	}
	e := apitest.StartEtcd(t, hub, netip.MustParseAddr("192.168.7.100"), false)
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	defer cancel()
	c, err := clientv3.New(
		clientv3.Config{
			Endpoints: []string{e.URL}, Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(
				func(ctx context.Context, addr string) (conn net.Conn, err error) {
					err = hub.Do(func() error { conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", addr); return err })
					return conn, err
				})},
		})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	put := func(key, value string) {
		if _, err := c.Put(ctx, "/coreos.com/network/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("config", `{"Network": "10.5.0.0/16", "Backend": {"Type": "vxlan"}}`)
	put(
		"subnets/10.5.2.0-24",
		`{"PublicIP":"192.168.7.2","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:42"}}`,
	)
	want, macs, hardware := "", map[string]bool{}, regexp.MustCompile(`link/ether [0-9a-f:]+`)
	for step := 0; step < 50; step++ {
		if _, err := c.Delete(ctx, "/coreos.com/network/subnets/10.5.1.0-24"); err != nil {
			t.Fatal(err)
		}
		ns, dir := hostNS(t, hub, step), t.TempDir()
		file := filepath.Join(dir, "subnet.env")
		flags := "--ip-masq --etcd-endpoints=" + e.URL + " --subnet-file=" + file
		killed := false
		if step > 0 {
			killed = runChild(t, ns, flags, filepath.Join(dir, "first"), step)
		}
		runChild(t, ns, flags, filepath.Join(dir, "second"), 0)
		got := stateOf(t, ns, file)
		answer, err := c.Get(ctx, "/coreos.com/network/subnets/", clientv3.WithPrefix())
		if err != nil || len(answer.Kvs) != 2 {
			t.Fatalf("killed at step %d: leases %v %v", step, answer, err)
		}
		mac := hardware.FindString(got)
		if own := string(answer.Kvs[0].Value); mac == "" || macs[mac] ||
			!strings.Contains(own, strings.TrimPrefix(mac, "link/ether ")) {
			t.Errorf(
				"killed at step %d: the device has %q, which the lease must say, and which another daemon must not have guessed: %s", step, mac, own,
			)
		}
		macs[mac], got = true, strings.ReplaceAll(got, mac, "")
		if step == 0 {
			want = got
			for _, word := range []string{
				"10.5.2.0/24 via 10.5.2.0 dev flannel.1", "FLANNEL-FWD", "MASQUERADE --random-fully", "dst 192.168.7.2",
				"FLANNEL_MTU=1450",
			} {
				if !strings.Contains(want, word) {
					t.Fatalf("no %q in\n%s", word, want)
				}
			}
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("killed at step %d (-never +killed):\n%s", step, d)
		}
		if !killed {
			t.Logf("killed at each of %d steps", step-1)
			return
		}
	}
	t.Error("steps without end")
}

// runChild runs a daemon until it is killed, or ready; then it is ended as an administrator does.
func runChild(t *testing.T, ns *netns.NS, flags, ready string, step int) (killed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childFlags+"="+flags, childReady+"="+ready)
	if step > 0 {
		cmd.Env = append(cmd.Env, childStep+"="+strconv.Itoa(step))
	}
	log, err := os.Create(ready + ".log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stderr = log
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill(); <-done }()
	for deadline := time.Now().Add(limit); ; {
		select {
		case <-done:
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
				b, _ := os.ReadFile(log.Name())
				t.Fatalf("the daemon ended by itself: %v\n%s", cmd.ProcessState, b)
			}
			return true
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(log.Name())
			t.Fatalf("not ready within %s\n%s", limit, b)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-done
	return false
}
