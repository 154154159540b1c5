// SPDX-License-Identifier: Apache-2.0

// Package libvirt runs a virtual machine by libvirt, with a daemon of its own in the pod's namespaces: what the domain
// is told of its network is what a KubeVirt launcher would tell. The daemon's files are in a mount namespace of its
// own, its processes in a namespace that ends with it, so that nothing of the node's libvirt is touched and nothing is
// left.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/child"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Machine is a domain that runs.
type Machine struct {
	name, socket string
	daemon       *child.Child
	done         chan struct{}
	once         sync.Once
	err          error
}

const (
	startTime = 60 * time.Second
	pause     = 100 * time.Millisecond
	lookPause = time.Second // each look is a process
	callTime  = 60 * time.Second
	daemonLog = "libvirtd.log"
)

// files are private to the daemon: what it is told, and where it would otherwise meet the node's.
const prepare = `set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt /etc/libvirt; do
	mkdir -p "$d"
	mount -t tmpfs -o mode=755 weft "$d"
done
# Its drivers look for users that only the whole installation of a distribution makes.
user() {
	grep -q "^$2:" "/etc/$1" && return
	{ cat "/etc/$1"; echo "$2:x:$USER_ID:$3"; } >"/run/libvirt/$1.new"
	cat "/run/libvirt/$1.new" >"/run/libvirt/$1"
	mountpoint -q "/etc/$1" || mount --bind "/run/libvirt/$1" "/etc/$1"
}
user passwd libvirt-qemu "$USER_ID::/:/bin/false"
user group libvirt-qemu ""
user group kvm ""
# Where the processor is emulated, nobody asks a /dev/kvm that may not work.
[ "$ACCEL" = kvm ] || [ ! -e /dev/kvm ] || mount --bind /dev/null /dev/kvm
mkdir /var/lib/libvirt/weft
cp "$KERNEL" /var/lib/libvirt/weft/kernel
cp "$INITRD" /var/lib/libvirt/weft/initrd
chmod 644 /var/lib/libvirt/weft/*
printf '%s\n' "unix_sock_dir = \"$DIR\"" 'auth_unix_rw = "none"' \
	'unix_sock_rw_perms = "0700"' >/etc/libvirt/libvirtd.conf
printf '%s\n' "user = \"+$USER_ID\"" "group = \"+$USER_ID\"" 'security_driver = "none"' \
	'dynamic_ownership = 0' 'remember_owner = 0' 'namespaces = []' \
	'cgroup_controllers = []' 'stdio_handler = "file"' >/etc/libvirt/qemu.conf
export PATH="$PATH:/usr/sbin:/sbin" HOME=/root
libvirtd -f /etc/libvirt/libvirtd.conf & # not the first process, whom orphans are left to
wait $!
`

// Start defines a domain and starts it. The configuration is QEMU's; its open taps are not needed: libvirt opens the
// links.
func Start(ctx context.Context, c qemu.Config) (*Machine, error) {
	domain, err := xmlOf(c)
	if err != nil {
		return nil, err
	}
	m := &Machine{name: domainName(c.Name), socket: filepath.Join(c.Dir, "libvirt-sock"), done: make(chan struct{})}
	for _, program := range []string{"virsh", "libvirtd"} {
		if err := installed(program); err != nil {
			return nil, model.Faultf(model.CodeInvalidEnv,
				"install libvirt-daemon, libvirt-daemon-driver-qemu and libvirt-clients", "machine %s: %w", c.Name, err)
		}
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, daemonLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", c.Name, err)
	}
	defer func() { _ = log.Close() }()
	user := uint32(0)
	if c.User != nil {
		user = *c.User
	}
	cmd := exec.Command("sh", "-c", prepare)
	cmd.Env = append(os.Environ(), "DIR="+c.Dir, "KERNEL="+c.Kernel, "INITRD="+c.Initrd, fmt.Sprintf("USER_ID=%d", user),
		"ACCEL="+c.Accel)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if m.daemon, err = child.Start(c.NS, cmd); err != nil {
		return nil, model.Faultf(model.CodeInvalidEnv, "run as root", "machine %s: libvirt: %w", c.Name, err)
	}
	file := filepath.Join(c.Dir, "domain.xml")
	if err = os.WriteFile(file, []byte(domain), 0o600); err == nil {
		err = m.begin(ctx, file)
	}
	if err != nil {
		m.end(nil)
		return nil, fmt.Errorf("machine %s: libvirt: %w%s", c.Name, err, lastWords(log.Name()))
	}
	go m.follow() //nolint:gosec // it ends with the machine, not with the call that begins it
	return m, nil
}

// lastWords are what the daemon complained of last.
func lastWords(path string) string {
	b, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := lines[len(lines)-1]
	if last == "" {
		return ""
	}
	return "; its daemon's last words: " + last
}

func installed(program string) error {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("there is no %s", program)
}

// domainName is a name that libvirt takes: it makes files of it.
func domainName(key string) string { return strings.ReplaceAll(key, "/", "_") }

// begin waits for the daemon, and starts the domain.
func (m *Machine) begin(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		_, err := m.Virsh(ctx, "list")
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-m.daemon.Done():
			return errors.New("its daemon has ended")
		case <-time.After(pause):
		}
	}
	if _, err := m.Virsh(ctx, "define", file); err != nil {
		return err
	}
	_, err := m.Virsh(ctx, "start", m.name)
	return err
}

// Virsh does one of libvirt's commands.
func (m *Machine) Virsh(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "virsh",
		append([]string{"-q", "-c", "qemu+unix:///system?socket=" + m.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// Name is the domain's.
func (m *Machine) Name() string { return m.name }

// follow notices that the domain has ended.
func (m *Machine) follow() {
	for {
		select {
		case <-m.done:
			return
		case <-m.daemon.Done():
			m.end(fmt.Errorf("libvirtd: %w", m.daemon.Err()))
			return
		case <-time.After(lookPause):
		}
		state, err := m.Virsh(context.Background(), "domstate", "--reason", m.name)
		switch {
		case err != nil:
			continue // the daemon's end is seen above
		case strings.HasPrefix(state, "shut off (shutdown)"), strings.HasPrefix(state, "shut off (destroyed)"):
			m.end(nil)
			return
		case strings.HasPrefix(state, "shut off"), strings.HasPrefix(state, "crashed"):
			m.end(errors.New(state))
			return
		}
	}
}

// end takes the daemon away, and with it all that it has started.
func (m *Machine) end(err error) {
	m.once.Do(func() {
		m.err = err
		m.daemon.Kill()
		close(m.done)
	})
}

// Done is closed when the domain has ended.
func (m *Machine) Done() <-chan struct{} { return m.done }

// Err tells how it ended.
func (m *Machine) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}

// Kill ends it at once.
func (m *Machine) Kill() {
	_, _ = m.Virsh(context.Background(), "destroy", m.name)
	m.end(nil)
	<-m.done
}

// Stop presses the machine's button, and ends it at the latest when the context does.
func (m *Machine) Stop(ctx context.Context) {
	defer m.Kill()
	for {
		if _, err := m.Virsh(ctx, "shutdown", m.name); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-m.done:
			return
		case <-time.After(20 * pause):
		}
	}
}

// SetLink gives the guest's end of a card its carrier, or takes it away.
func (m *Machine) SetLink(ctx context.Context, d model.VMDevice, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	_, err := m.Virsh(ctx, "domif-setlink", m.name, d.Target, state)
	return err
}
