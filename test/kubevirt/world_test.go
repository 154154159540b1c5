// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const inside = "WEFT_TRUTH_INSIDE"

// prepare creates /run and /var (with a real directory run, as in KubeVirt's images), and the user and group of
// KubeVirt's images.
const prepare = `mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var
mkdir -p /var/run/kubevirt-private
(grep -v '^qemu:' /etc/passwd; echo 'qemu:x:107:107::/:/bin/false') >/var/passwd
(grep -v '^qemu:' /etc/group; echo 'qemu:x:107:') >/var/group
mount --bind /var/passwd /etc/passwd
mount --bind /var/group /etc/group
ip link set lo up`

// TestMain runs the tests in new network, mount (KubeVirt writes below /var) and PID namespaces.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 || os.Getenv("WEFT_BIN_DIR") == "" {
		fmt.Fprintln(os.Stderr, "SKIP: KubeVirt's code beside weft's: make truth-kubevirt, as root")
		return
	}
	var err error
	if os.Getenv(inside) == "" {
		cmd := exec.Command("unshare",
			append([]string{"--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"}, os.Args...)...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), inside+"=1"), os.Stdout, os.Stderr
		err = cmd.Run()
	} else {
		err = exec.Command("sh", "-ec", prepare).Run()
		if err == nil && m.Run() != 0 {
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubevirt-net:", err)
		os.Exit(1)
	}
}

// program returns the path of a built program: weft's, or one with KubeVirt's code.
func program(name string) string {
	dir := os.Getenv("WEFT_BIN_DIR")
	if name == "kubevirt-net" || name == "virt-chroot" {
		dir = filepath.Join(dir, "kubevirt")
	}
	return filepath.Join(dir, name)
}

// must runs a program, which must succeed.
func must(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := try(argv...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func try(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "MY_POD_IP=10.244.0.10",
		"PATH="+filepath.Join(os.Getenv("WEFT_BIN_DIR"), "kubevirt")+":"+os.Getenv("PATH"))
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(argv, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}

const (
	podMAC     = "02:11:22:33:44:55"
	gateway4   = "10.244.0.1"
	gateway6   = "fd00:244::1"
	farGateway = "169.254.1.1"
)

// pod is a network namespace with a link eth0 whose peer belongs to the tests; it has its own host name, resolv.conf
// and /var.
type pod struct {
	pid   int
	netns string
}

// newPod creates a pod. Addresses are CIDRs; a single-address CIDR has a gateway outside of any subnet.
func newPod(t *testing.T, addrs ...string) pod {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(
		conf,
		[]byte(
			"search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\nnameserver fd00:96::a\n",
		), 0o644,
	); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "--mount", "--uts", "sh", "-ec",
		"mount -t tmpfs tmpfs /var; mkdir -p /var/run/kubevirt-private; mount --bind "+conf+
			" /etc/resolv.conf; hostname vm1; ip link set lo up; echo ready; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal("pod:", err)
	}
	p := pod{pid: cmd.Process.Pid, netns: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)}
	p.link(t, "eth0", podMAC, addrs...)
	return p
}

// link adds another end of a veth pair to the pod.
func (p pod) link(t *testing.T, name, mac string, addrs ...string) {
	t.Helper()
	far := fmt.Sprintf("h%d%.4s", p.pid, strings.TrimPrefix(name, "pod"))
	must(t, "ip", "link", "add", far, "mtu", "1450", "type", "veth", "peer", "name", name, "mtu", "1450", "address", mac,
		"netns", strconv.Itoa(p.pid))
	t.Cleanup(func() { _, _ = try("ip", "link", "del", far) })
	must(t, "ip", "link", "set", far, "up", "address", "ee:ee:ee:ee:ee:ee")
	for _, line := range []string{gateway4 + "/32", "10.244.0.9/32", gateway6 + "/128", farGateway + "/32"} {
		must(t, "ip", "addr", "add", line, "dev", far, "nodad")
	}
	p.run(t, "sysctl", "-qw", "net.ipv6.conf."+name+".accept_dad=0")
	p.run(t, "ip", "link", "set", name, "up")
	for _, a := range addrs {
		p.run(t, "ip", "addr", "add", a, "dev", name, "nodad")
		if name != "eth0" {
			continue
		}
		switch {
		case strings.HasSuffix(a, "/32"):
			p.run(t, "ip", "route", "add", farGateway, "dev", name, "scope", "link")
			p.run(t, "ip", "route", "add", "default", "via", farGateway, "dev", name)
		case strings.Contains(a, ":"):
			p.run(t, "ip", "route", "add", "default", "via", gateway6, "dev", name)
		default:
			p.run(t, "ip", "route", "add", "default", "via", gateway4, "dev", name)
			p.run(t, "ip", "route", "add", "192.0.2.0/24", "via", "10.244.0.9", "dev", name)
		}
	}
}

// in returns a command line that runs in the pod's network namespace, and if needed with its files.
func (p pod) in(argv ...string) []string {
	return append([]string{"nsenter", "-t", strconv.Itoa(p.pid), "-n", "-m", "-u", "--"}, argv...)
}

func (p pod) run(t *testing.T, argv ...string) string {
	t.Helper()
	return must(t, p.in(argv...)...)
}
