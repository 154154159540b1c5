// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/netns"
)

// level is what an attacker may do where it is.
type level string

const (
	ordinary level = "a" // uid 65534 without capabilities
	netRaw   level = "b" // uid 0 with what container runtimes give by default, CAP_NET_RAW among it
	netAdmin level = "c" // uid 0 with CAP_NET_ADMIN, too
	inGuest  level = "d" // root in a guest: whole frames on the guest's wire
)

func (l level) String() string {
	return map[level]string{
		ordinary: "ordinary process", netRaw: "root with NET_RAW", netAdmin: "root with NET_ADMIN",
		inGuest: "root in a guest",
	}[l]
}

// capabilities are those of containerd and CRI-O by default.
func (l level) capabilities() []uintptr {
	if l == ordinary {
		return nil
	}
	out := []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID,
		unix.CAP_SETUID, unix.CAP_SETPCAP,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE,
		unix.CAP_SETFCAP,
	}
	if l == netAdmin {
		out = append(out, unix.CAP_NET_ADMIN)
	}
	return out
}

// send is one thing that a sender does.
type send struct {
	// Frame leaves by Link, as it is.
	Link  string `json:",omitempty"`
	Frame []byte `json:",omitempty"`
	// Datagram is sent by a UDP socket, from From where it is set: an address that the socket has to bind to, whether it
	// is there or not.
	To, From netip.AddrPort
	Datagram []byte `json:",omitempty"`
	// TCP connects to To and sends Datagram.
	TCP bool `json:",omitempty"`
	// Run is a command line.
	Run []string `json:",omitempty"`
}

const levelVar = "WEFT_HOSTILE_LEVEL"

// attacker is what sends; it answers with an error for each, "" where there was none.
type attacker interface{ do(all ...send) []string }

// sender is a process with the rights of an attacker in a namespace.
type sender struct {
	t   testing.TB
	in  *json.Encoder
	out *bufio.Reader
}

// newSender starts one. It ends with the test.
func newSender(t testing.TB, ns *netns.NS, l level) *sender {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), levelVar+"="+string(l))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &sender{t: t, in: json.NewEncoder(in), out: bufio.NewReader(out)}
}

// do does all of it, in order, and returns an error for each, "" where there was none.
func (s *sender) do(all ...send) []string {
	s.t.Helper()
	var said []string
	if err := s.in.Encode(all); err != nil {
		s.t.Fatalf("sender: %v", err)
	}
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &said)
	}
	if err != nil || len(said) != len(all) {
		s.t.Fatalf("sender: %v, answered %q", err, line)
	}
	return said
}

// run runs a command line with the sender's rights.
func (s *sender) run(line string) {
	s.t.Helper()
	if said := s.do(send{Run: strings.Fields(line)}); said[0] != "" {
		s.t.Fatalf("%s: %s", line, said[0])
	}
}

// serveSender is what the process does.
func serveSender(l level) error {
	if err := confine(l); err != nil {
		return err
	}
	in, out, w := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout), &wire{fd: -1}
	defer w.close()
	for {
		var all []send
		if err := in.Decode(&all); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		said := []string{}
		for _, s := range all {
			text := ""
			if err := s.do(w); err != nil {
				text = err.Error()
			}
			said = append(said, text)
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
}

// confine leaves all threads the rights of a level, permanently.
func confine(l level) error {
	var mask uint64
	for _, c := range l.capabilities() {
		mask |= 1 << c
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if mask&(1<<c) == 0 {
			if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); e != 0 && e != unix.EINVAL {
				return fmt.Errorf("drop capability %d: %w", c, e)
			}
		}
	}
	if l == ordinary {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534)); err != nil {
			return err
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&data)
	if e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return nil
}

// wire is a socket for frames. It stays open: the kernel takes its time to close one.
type wire struct{ fd int }

func (w *wire) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
}

func (s send) do(w *wire) error {
	switch {
	case s.Run != nil:
		if out, err := exec.Command(s.Run[0], s.Run[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	case s.Frame != nil:
		return s.frame(w)
	}
	return s.socket()
}

func (s send) frame(w *wire) error {
	if w.fd < 0 {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		w.fd = fd
	}
	link, err := unix.NewIfreq(s.Link)
	if err == nil {
		err = unix.IoctlIfreq(w.fd, unix.SIOCGIFINDEX, link)
	}
	if err != nil {
		return err
	}
	return unix.Sendto(w.fd, s.Frame, 0, &unix.SockaddrLinklayer{Ifindex: int(link.Uint32())})
}

func (s send) socket() error {
	family, kind := unix.AF_INET6, unix.SOCK_DGRAM
	if s.To.Addr().Is4() {
		family = unix.AF_INET
	}
	if s.TCP {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if s.From.IsValid() {
		if family == unix.AF_INET {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		} else {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		}
		if err = errors.Join(err, unix.Bind(fd, sockaddr(s.From))); err != nil {
			return err
		}
	}
	if !s.TCP {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
		return unix.Sendto(fd, s.Datagram, 0, sockaddr(s.To))
	}
	limit := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(s.To)); err != nil {
		return err
	}
	_, err = unix.Write(fd, s.Datagram)
	return err
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}
