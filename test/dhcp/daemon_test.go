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

// The flags of the reference daemon have their effect.
func TestFlags(t *testing.T) {
	n := newNode(t)
	weft, bin := filepath.Join(nettest.Programs(t), "weft"), filepath.Join(nettest.Programs(t), "cni")
	ns := n.pod(true)
	// A root with the socket's directory, in which the namespaces of the node are seen too.
	root := n.path("root")
	nettest.Run(t, nil, "mkdir", "-p", root+"/tmp")
	nettest.Run(t, nil, "mount", "--rbind", "/tmp", root+"/tmp")
	t.Cleanup(func() { nettest.Run(t, nil, "umount", "-l", root+"/tmp") })
	d := n.start(weft, "serving leases", "dhcp", "daemon", "-hostprefix", root, "-socketpath", n.path("dhcp.sock"),
		"-pidfile", n.path("pid"),
		"-statedir", n.path("state"), "-broadcast", "-timeout=2s", "--resendmax", "1s", "-resendtimeout", "3s")
	if b, err := os.ReadFile(n.path("pid")); err != nil || string(b) != strconv.Itoa(d.cmd.Process.Pid) {
		t.Errorf("pid file: %q, %v", b, err)
	}
	conf := n.conf("1.0.0", "dhcp", "")
	n.must(bin, "dhcp", "ADD", conf, "c1", ns)
	n.must(bin, "dhcp", "DEL", conf, "c1", ns)
	n.returned("DEL")
	d.end(15)
	for _, name := range []string{"pid", "dhcp.sock"} {
		if _, err := os.Stat(n.path(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// Wrong flags are refused with field and value.
func TestBadFlags(t *testing.T) {
	n := newNode(t)
	weft := filepath.Join(nettest.Programs(t), "weft")
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"-pidfile pid": {
			2, `weft: wrong usage: -pidfile "pid" is not absolute` + "\nhint: write the path from the root\n",
		},
		"-timeout 0": {
			2, "weft: wrong usage: -timeout 0s is not above 0\nhint: a duration, for example 10s\n",
		},
		"-resendmax -1s": {
			2, "weft: wrong usage: -resendmax -1s is not above 0\nhint: a duration, for example 10s\n",
		},
		"-resendtimeout soon":               {2, `invalid value "soon" for flag -resendtimeout`},
		"-strange":                          {2, "flag provided but not defined: -strange"},
		"more":                              {2, `argument "more" is not understood`},
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

// A socket that systemd has opened is used; a second daemon is refused.
func TestSocketOfSystemd(t *testing.T) {
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
	n.run(cmd, "serving leases")
	ns := n.pod(true)
	conf := n.conf("1.0.0", "dhcp", "")
	n.must(bin, "dhcp", "ADD", conf, "c1", ns)
	n.must(bin, "dhcp", "DEL", conf, "c1", ns)
	n.returned("DEL")
	for state, want := range map[string]string{
		n.path("state"): "another process keeps it", n.path("other"): "another daemon answers there",
	} {
		out, err := exec.Command(weft, "dhcp", "daemon", "-socketpath", n.socket(), "-statedir", state).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("a second daemon: %v\n%s", err, out)
		}
	}
}
