// SPDX-License-Identifier: Apache-2.0

package shim_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/nettest"
)

// absences are the ways in which an agent can be away; each gets a path and makes the socket, or not.
func absences() map[string]func(t *testing.T, socket string) {
	return map[string]func(t *testing.T, socket string){
		"never started": func(*testing.T, string) {},
		"killed": func(t *testing.T, socket string) {
			if err := syscall.Close(listen(t, socket, 8)); err != nil {
				t.Fatal(err)
			}
		},
		"stopped": func(t *testing.T, socket string) {
			fd := listen(t, socket, 8)
			t.Cleanup(func() { _ = syscall.Close(fd) })
		},
		"swamped": func(t *testing.T, socket string) {
			fd := listen(t, socket, 0)
			t.Cleanup(func() { _ = syscall.Close(fd) })
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		},
		"dies in the call": func(t *testing.T, socket string) {
			agent(t, socket, func(*net.UnixConn, wire.Request, []int) {})
		},
		"dies when busy": func(t *testing.T, socket string) {
			agent(t, socket, func(*net.UnixConn, wire.Request, []int) { time.Sleep(2 * wire.AnswerMillis * time.Millisecond) })
		},
		"dies in the answer": func(t *testing.T, socket string) {
			agent(t, socket, func(conn *net.UnixConn, _ wire.Request, _ []int) {
				_, _ = conn.Write(wire.AppendAnswer(nil, 0, []byte("long"))[:wire.AnswerHeader+1])
			})
		},
		"stops in the answer": func(t *testing.T, socket string) {
			agent(t, socket, func(conn *net.UnixConn, _ wire.Request, _ []int) {
				_, _ = conn.Write(wire.AppendAnswer(nil, 0, []byte("long"))[:wire.AnswerHeader+1])
				time.Sleep(2 * time.Second)
			})
		},
		"speaks nonsense": func(t *testing.T, socket string) {
			agent(t, socket, func(conn *net.UnixConn, _ wire.Request, _ []int) { _, _ = conn.Write([]byte("HTTP/1.1 400 Bad")) })
		},
	}
}

// listen makes a socket that is not served.
func listen(t *testing.T, socket string, backlog int) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestAgentAway(t *testing.T) {
	nettest.EndToEnd(t)
	bin := build(t)
	for name, prepare := range absences() {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "run", "weft", "agent.sock")
			if name != "never started" {
				if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			prepare(t, socket)
			for verb, code := range map[string]int{"ADD": 11, "CHECK": 11, "GC": 11, "STATUS": 50, "DEL": 0} {
				r := run(t, bin, confFor(socket), "CNI_COMMAND="+verb, "CNI_CONTAINERID=c1", "CNI_NETNS=/proc/self/ns/net")
				if r.fault.Code != code || (r.exit == 0) != (code == 0) {
					t.Errorf("%s: exit %d, stdout %s, want code %d", verb, r.exit, r.stdout, code)
				}
				if code != 0 && (r.fault.CNIVersion != "1.0.0" || !strings.Contains(r.fault.Msg, socket)) {
					t.Errorf("%s: the error lacks version or socket: %s", verb, r.stdout)
				}
				bound := time.Second + slowness(t, bin)
				if verb == "DEL" { // would be queued again
					bound *= 5
				}
				for try := 0; try < 5 && verb != "DEL" && r.took > bound; try++ { // a busy host gets several tries
					r = run(t, bin, confFor(socket), "CNI_COMMAND="+verb, "CNI_CONTAINERID=c1", "CNI_NETNS=/proc/self/ns/net")
					bound = time.Second + slowness(t, bin)
				}
				if r.took > bound {
					t.Errorf("%s took %s, more than %s", verb, r.took, bound)
				}
			}
			checkQueue(t, socket)
		})
	}
}

// slowness is what a busy host adds to any run: it is measured by runs that do nothing.
func slowness(t *testing.T, bin string) time.Duration {
	t.Helper()
	var most time.Duration
	for range 3 {
		most = max(most, run(t, bin, "", "CNI_COMMAND=VERSION").took)
	}
	return 3 * most
}

// checkQueue wants exactly the one DEL of TestAgentAway in the queue.
func checkQueue(t *testing.T, socket string) {
	t.Helper()
	files, err := os.ReadDir(wire.QueueDir(socket))
	if err != nil || len(files) != 1 || !strings.HasSuffix(files[0].Name(), wire.QueueSuffix) {
		t.Fatalf("queue holds %v (%v), want one DEL", files, err)
	}
	b, err := os.ReadFile(filepath.Join(wire.QueueDir(socket), files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.ParseRequest(b)
	if err != nil {
		t.Fatal(err)
	}
	if r.Getenv("CNI_COMMAND") != "DEL" || r.Getenv("CNI_CONTAINERID") != "c1" ||
		string(r.Stdin()) != confFor(socket) || r.Netns {
		t.Errorf("the queued request is %q", b)
	}
}

func TestQueueCanNotBeWritten(t *testing.T) {
	bin := build(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	if err := os.WriteFile(wire.QueueDir(socket), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, bin, confFor(socket), "CNI_COMMAND=DEL")
	if r.exit != 1 || r.fault.Code != 5 || !strings.Contains(r.fault.Msg, wire.QueueDir(socket)) {
		t.Errorf("exit %d, %s", r.exit, r.stdout)
	}
}

func TestQueueOnFullDisk(t *testing.T) {
	bin := build(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4096,nr_inodes=3"); err != nil {
		nettest.Skip(t, fmt.Sprintf("a tmpfs cannot be mounted here: %v", err))
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	socket := filepath.Join(dir, "agent.sock")
	conf := confFor(socket) + strings.Repeat(" ", 8192)
	r := run(t, bin, conf, "CNI_COMMAND=DEL")
	files, _ := os.ReadDir(wire.QueueDir(socket))
	if r.exit != 1 || r.fault.Code != 5 || len(files) != 0 {
		t.Errorf("exit %d, %s, queue %v", r.exit, r.stdout, files)
	}
}
