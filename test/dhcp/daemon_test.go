// SPDX-License-Identifier: Apache-2.0

package dhcp_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// The flags of the reference daemon are supported.
func TestFlags(t *testing.T) {
	n := newNode(t)
	weft, bin := filepath.Join(nettest.Programs(t), "weft"), filepath.Join(nettest.Programs(t), "cni")
	ns := n.pod(true)
	// A root directory with the socket's directory, in which the node's namespaces are visible, too.
	root := n.path("root")
	nettest.Run(t, nil, "mkdir", "-p", root+"/tmp")
	nettest.Run(t, nil, "mount", "--rbind", "/tmp", root+"/tmp")
	t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", root+"/tmp") })
	d := n.start(weft, "serves leases", "dhcp", "daemon", "-hostprefix", root, "-socketpath", n.path("dhcp.sock"),
		"-pidfile", n.path("pid"),
		"-statedir", n.path("state"), "-broadcast", "-timeout=10s", "--resendmax", "1s", "-resendtimeout", "30s")
	if b, err := os.ReadFile(n.path("pid")); err != nil || string(b) != strconv.Itoa(d.cmd.Process.Pid) {
		t.Errorf("pid file: %q, %v", b, err)
	}
	conf := n.conf("1.0.0", "dhcp", "")
	n.mustCall(bin, "dhcp", "ADD", conf, "c1", ns)
	n.mustCall(bin, "dhcp", "DEL", conf, "c1", ns)
	n.expectNoLeases("DEL")
	d.stop(15)
	for _, name := range []string{"pid", "dhcp.sock"} {
		if _, err := os.Stat(n.path(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// Bad flags are rejected with field and value.
func TestBadFlags(t *testing.T) {
	n := newNode(t)
	weft := filepath.Join(nettest.Programs(t), "weft")
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"-pidfile pid": {
			2, `weft: -pidfile "pid" is not an absolute path` + "\nhint: for example -pidfile /run/weft/dhcp.pid\n",
		},
		"-timeout 0": {
			2, "weft: -timeout 0s is not a positive duration\nhint: for example -timeout 10s\n",
		},
		"-resendmax -1s": {
			2, "weft: -resendmax -1s is not a positive duration\nhint: for example -resendmax 10s\n",
		},
		"-resendtimeout soon":               {2, `weft: -resendtimeout "soon" is not a duration with a unit`},
		"-strange":                          {2, "weft: unknown flag -strange"},
		"more":                              {2, `weft: unexpected argument "more"`},
		"-statedir /proc/none":              {1, `weft: directory of leases "/proc/none":`},
		"-socketpath " + n.path(longName()): {1, "weft: socket: "},
	} {
		full := append([]string{"dhcp", "daemon", "-statedir", n.path("state")}, strings.Fields(args)...)
		out, err := exec.Command(weft, full...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want.code || !strings.Contains(string(out), want.text) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func longName() string { return strings.Repeat("x", 120) }

// The daemon uses a socket that systemd has opened; a second daemon is rejected.
func TestSystemdSocket(t *testing.T) {
	n := newNode(t)
	weft, bin := filepath.Join(nettest.Programs(t), "weft"), filepath.Join(nettest.Programs(t), "cni")
	l, err := net.Listen("unix", n.socket())
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close(); _ = l.Close() }()
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" dhcp daemon -socketpath /nowhere -statedir "$1"`,
		weft, n.path("state"))
	cmd.ExtraFiles = []*os.File{file}
	n.run(cmd, "serves leases")
	ns := n.pod(true)
	conf := n.conf("1.0.0", "dhcp", "")
	n.mustCall(bin, "dhcp", "ADD", conf, "c1", ns)
	n.mustCall(bin, "dhcp", "DEL", conf, "c1", ns)
	n.expectNoLeases("DEL")
	for state, want := range map[string]string{
		n.path("state"): "another process keeps it", n.path("other"): "another daemon answers there",
	} {
		out, err := exec.Command(weft, "dhcp", "daemon", "-socketpath", n.socket(), "-statedir", state).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("a second daemon: %v\n%s", err, out)
		}
	}
}
