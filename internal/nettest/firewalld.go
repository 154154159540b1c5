// SPDX-License-Identifier: Apache-2.0

package nettest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/netns"
)

// bus configures a D-Bus that allows everything.
const bus = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
`

// Firewalld starts Debian's firewalld for a network namespace (nil: the test's own), and the D-Bus that it uses, on an
// empty /run that only the test sees. Both end with the test. Without the programs the test is skipped.
func Firewalld(t testing.TB, ns *netns.NS) *FirewalldProcess {
	t.Helper()
	for _, name := range []string{"firewalld", "firewall-cmd", "dbus-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			SkipMissing(t, "no "+name+" on this host: firewalld is not tested (test/deps.sh test installs it)")
		}
	}
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatalf("an empty /run: %v", err)
	}
	f := &FirewalldProcess{t: t, ns: ns, dir: t.TempDir()}
	t.Cleanup(func() {
		if err := syscall.Unmount("/run", syscall.MNT_DETACH); err != nil {
			t.Errorf("the /run of before: %v", err)
		}
	})
	if err := os.Mkdir("/run/dbus", 0o755); err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(f.dir, "bus.conf")
	if err := os.WriteFile(conf, []byte(bus), 0o644); err != nil {
		t.Fatal(err)
	}
	stop := f.start("dbus-daemon", "--config-file="+conf, "--nofork", "--nopidfile")
	t.Cleanup(stop)
	f.until(func() bool { _, err := os.Stat("/run/dbus/system_bus_socket"); return err == nil })
	f.Start()
	return f
}

// FirewalldProcess is a firewalld and its bus.
type FirewalldProcess struct {
	t    testing.TB
	ns   *netns.NS
	dir  string
	stop func()
}

// Start starts firewalld, and waits until it responds.
func (f *FirewalldProcess) Start() {
	f.t.Helper()
	f.stop = f.start("firewalld", "--nofork", "--nopid", "--system-config", f.dir, "--log-file",
		filepath.Join(f.dir, "log"))
	f.t.Cleanup(f.stop)
	f.until(func() bool { _, err := Try(nil, "firewall-cmd", "--state"); return err == nil })
}

// Stop stops firewalld; the bus stays.
func (f *FirewalldProcess) Stop() { f.stop() }

// Cmd runs firewall-cmd.
func (f *FirewalldProcess) Cmd(args ...string) string {
	f.t.Helper()
	return strings.TrimSpace(Run(f.t, nil, append([]string{"firewall-cmd"}, args...)...))
}

func (f *FirewalldProcess) start(argv ...string) (stop func()) {
	f.t.Helper()
	if f.ns != nil {
		argv = append([]string{"nsenter", "--net=" + f.ns.Path()}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the process dies with the thread that made it
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		f.t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if f.t.Failed() {
			f.t.Logf("%s said:\n%s", strings.Join(argv, " "), output.String())
		}
	})
}

func (f *FirewalldProcess) until(ready func() bool) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatal("firewalld and its bus did not come up in two minutes")
		}
	}
}
