// SPDX-License-Identifier: Apache-2.0

// Package libvirt runs a VM with libvirt, by a daemon of its own in the pod's namespaces: the network devices in the
// domain are those that KubeVirt's launcher would define. The daemon has a mount namespace for its files and a PID
// namespace that ends with it, so that the node's libvirt is not touched and nothing is left.
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
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/vm/child"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// Domain is a running domain.
type Domain struct {
	name, socket string
	ns           *netns.NS
	daemon       *child.Child
	done         chan struct{}
	once         sync.Once
	err          error
}

const (
	startTime = 60 * time.Second
	pause     = 100 * time.Millisecond
	pollPause = time.Second // each poll starts a process
	callTime  = 60 * time.Second
	daemonLog = "libvirtd.log"
)

// prepare makes the daemon's configuration and hides the node's libvirt from it.
const prepare = `set -e
mount --make-rprivate /
mount -t proc proc /proc
for d in /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt /etc/libvirt; do
	mkdir -p "$d"
	mount -t tmpfs -o mode=755 weft "$d"
done
# Its drivers need users that only a distribution's complete package creates.
user() {
	grep -q "^$2:" "/etc/$1" && return
	{ cat "/etc/$1"; echo "$2:x:$USER_ID:$3"; } >"/run/libvirt/$1.new"
	cat "/run/libvirt/$1.new" >"/run/libvirt/$1"
	mountpoint -q "/etc/$1" || mount --bind "/run/libvirt/$1" "/etc/$1"
}
user passwd libvirt-qemu "$USER_ID::/:/bin/false"
user group libvirt-qemu ""
user group kvm ""
# Its own /dev: libvirt takes a tap for a macvtap if there is a /dev/tapN with its index, which may belong to a link of
# another namespace. With an emulated CPU, a /dev/kvm that may not work must not be probed.
dev=/run/libvirt/weft-dev
mkdir "$dev"
mount -t tmpfs -o mode=755 weft "$dev"
mkdir "$dev/net" "$dev/shm"
chmod 1777 "$dev/shm"
ln -s /proc/self/fd "$dev/fd"
[ "$ACCEL" = kvm ] && kvm=kvm || kvm=
for f in full null ptmx random tty urandom zero net/tun vhost-net $kvm; do
	[ -c "/dev/$f" ] || continue
	: >"$dev/$f"
	mount --bind "/dev/$f" "$dev/$f"
done
for d in pts vfio; do
	[ -d "/dev/$d" ] || continue
	mkdir "$dev/$d"
	mount --rbind "/dev/$d" "$dev/$d"
done
mount --move "$dev" /dev
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
libvirtd -f /etc/libvirt/libvirtd.conf & # not PID 1, which must reap orphans
wait $!
`

// Start defines a domain and starts it. The configuration is QEMU's; its open taps are not needed, because libvirt
// opens the links.
func Start(ctx context.Context, c qemu.Config) (*Domain, error) {
	domain, err := domainXML(c)
	if err != nil {
		return nil, err
	}
	m := &Domain{
		name: domainName(c.Name), socket: filepath.Join(c.Dir, "libvirt-sock"), ns: c.NS, done: make(chan struct{}),
	}
	for _, program := range []string{"virsh", "libvirtd"} {
		if err := installed(program); err != nil {
			return nil, model.Errorf(model.CodeInvalidEnv,
				"install libvirt-daemon, libvirt-daemon-driver-qemu and libvirt-clients", "VM %s: %w", c.Name, err)
		}
	}
	log, err := os.OpenFile(filepath.Join(c.Dir, daemonLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", c.Name, err)
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
		return nil, model.Errorf(model.CodeInvalidEnv, "run as root", "VM %s: libvirt: %w", c.Name, err)
	}
	file := filepath.Join(c.Dir, "domain.xml")
	if err = os.WriteFile(file, []byte(domain), 0o600); err == nil {
		err = m.startDomain(ctx, file, c.Devices)
	}
	if err != nil {
		m.end(nil)
		return nil, fmt.Errorf("VM %s: libvirt: %w%s", c.Name, err, lastLine(log.Name()))
	}
	go m.watch() //nolint:gosec // it ends with the VM, not with the call's context
	return m, nil
}

// lastLine returns the last line of the daemon's log.
func lastLine(path string) string {
	b, _ := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := lines[len(lines)-1]
	if last == "" {
		return ""
	}
	return "; the daemon's last log line: " + last
}

func installed(program string) error {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		if _, err := os.Stat(filepath.Join(dir, program)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not installed", program)
}

// domainName returns a valid domain name: libvirt makes file names of it.
func domainName(key string) string { return strings.ReplaceAll(key, "/", "_") }

// startDomain waits for the daemon, and starts the domain.
func (m *Domain) startDomain(ctx context.Context, file string, devices []model.VMDevice) error {
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
			return errors.New("the daemon has ended")
		case <-time.After(pause):
		}
	}
	for _, d := range devices {
		if err := m.makeDevice(d); err != nil {
			return err
		}
	}
	if _, err := m.Virsh(ctx, "define", file); err != nil {
		return err
	}
	_, err := m.Virsh(ctx, "start", m.name)
	return err
}

// Virsh runs a virsh command.
func (m *Domain) Virsh(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "virsh",
		append([]string{"-q", "-c", "qemu+unix:///system?socket=" + m.socket}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("virsh %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// Name returns the domain's name.
func (m *Domain) Name() string { return m.name }

// watch waits until the domain ends.
func (m *Domain) watch() {
	for {
		select {
		case <-m.done:
			return
		case <-m.daemon.Done():
			m.end(fmt.Errorf("libvirtd: %w", m.daemon.Err()))
			return
		case <-time.After(pollPause):
		}
		state, err := m.Virsh(context.Background(), "domstate", "--reason", m.name)
		switch {
		case err != nil:
			continue // the end of the daemon is handled above
		case strings.HasPrefix(state, "shut off (shutdown)"), strings.HasPrefix(state, "shut off (destroyed)"):
			m.end(nil)
			return
		case strings.HasPrefix(state, "shut off"), strings.HasPrefix(state, "crashed"):
			m.end(errors.New(state))
			return
		}
	}
}

// end kills the daemon with all processes that it started.
func (m *Domain) end(err error) {
	m.once.Do(func() {
		m.err = err
		m.daemon.Kill()
		close(m.done)
	})
}

// Done is closed when the domain has ended.
func (m *Domain) Done() <-chan struct{} { return m.done }

// Err returns how the domain ended.
func (m *Domain) Err() error {
	select {
	case <-m.done:
		return m.err
	default:
		return nil
	}
}

// Kill ends the domain at once.
func (m *Domain) Kill() {
	_, _ = m.Virsh(context.Background(), "destroy", m.name)
	m.end(nil)
	<-m.done
}

// Stop sends ACPI shutdown, and kills the domain when the context ends.
func (m *Domain) Stop(ctx context.Context) {
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

// SetLink sets the carrier of a guest's network device.
func (m *Domain) SetLink(ctx context.Context, d model.VMDevice, up bool) error {
	state := "down"
	if up {
		state = "up"
	}
	_, err := m.Virsh(ctx, "domif-setlink", m.name, d.Target, state)
	return err
}
