// SPDX-License-Identifier: Apache-2.0

package shim_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni/wire"
)

// build makes the real program.
func build(t testing.TB) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "weft-cni")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", bin,
		"github.com/weft-net/weft/cmd/weft-cni")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build weft-cni: %v\n%s", err, out)
	}
	return bin
}

// reply is what a run of weft-cni left behind.
type reply struct {
	exit           int
	stdout, stderr string
	took           time.Duration
	fault          struct {
		CNIVersion   string
		Code         int
		Msg, Details string
	}
}

// run executes weft-cni with nothing in its environment but env.
func run(t testing.TB, bin, conf string, env ...string) reply {
	t.Helper()
	cmd := exec.Command(bin)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(conf)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	r := reply{stdout: out.String(), stderr: errs.String(), took: time.Since(start)}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.exit = exit.ExitCode()
	} else if err != nil {
		t.Fatalf("run weft-cni: %v", err)
	}
	if r.exit != 0 {
		if err := json.Unmarshal(out.Bytes(), &r.fault); err != nil {
			t.Fatalf("stdout of a failed call is no error object: %v: %q", err, r.stdout)
		}
	}
	return r
}

// agent listens at socket and passes each request to answer on its connection; pings it answers as an agent does.
func agent(t testing.TB, socket string, answer func(conn *net.UnixConn, r wire.Request, files []int)) {
	t.Helper()
	for _, path := range []string{socket, wire.PingSocket(socket)} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.AcceptUnix()
				if err != nil {
					return
				}
				if path == socket {
					go serve(conn, answer)
					continue
				}
				_, _ = conn.Write(wire.AppendAnswer(nil, 0, nil))
				_ = conn.Close()
			}
		}()
	}
}

func serve(conn *net.UnixConn, answer func(*net.UnixConn, wire.Request, []int)) {
	defer func() { _ = conn.Close() }()
	b, oob := make([]byte, 64<<10), make([]byte, 256)
	n, on, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return
	}
	b = b[:n]
	h, err := wire.ParseHeader(b)
	if err != nil {
		return
	}
	rest := make([]byte, max(h.Size()-n, 0))
	if _, err := io.ReadFull(conn, rest); err != nil {
		return
	}
	r, err := wire.ParseRequest(append(b, rest...))
	if err != nil {
		return
	}
	var files []int
	if messages, err := syscall.ParseSocketControlMessage(oob[:on]); err == nil && len(messages) > 0 {
		files, _ = syscall.ParseUnixRights(&messages[0])
	}
	answer(conn, r, files)
	for _, fd := range files {
		_ = syscall.Close(fd)
	}
}

func confFor(socket string) string {
	b, _ := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "net", "type": "weft-cni", "socket": socket})
	return string(b)
}

func TestCallIsHandedOver(t *testing.T) {
	bin := build(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	agent(t, socket, func(conn *net.UnixConn, r wire.Request, files []int) {
		var passed, own syscall.Stat_t
		if len(files) != 1 || syscall.Fstat(files[0], &passed) != nil || syscall.Stat("/proc/self/ns/net", &own) != nil ||
			passed.Ino != own.Ino {
			_, _ = conn.Write(wire.AppendAnswer(nil, 9, []byte(`{"msg":"no namespace"}`)))
			return
		}
		out := r.Getenv("CNI_COMMAND") + "|" + r.Getenv("CNI_ARGS") + "|" + r.Getenv("HOME") + "|" + string(r.Stdin())
		_, _ = conn.Write(wire.AppendAnswer(nil, 0, []byte(out)))
	})
	conf := confFor(socket) + strings.Repeat(" ", 300<<10)
	r := run(t, bin, conf, "HOME=/root", "CNI_COMMAND=ADD", "CNI_ARGS=A=1;B=2", "CNI_NETNS=/proc/self/ns/net")
	if want := "ADD|A=1;B=2||" + conf; r.exit != 0 || r.stdout != want {
		t.Errorf("exit %d, stdout of %d bytes, want %d: %.200s", r.exit, len(r.stdout), len(want), r.stdout)
	}
}

func TestExitCodeAndErrnoTravel(t *testing.T) {
	bin := build(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "agent.sock")
	agent(t, socket, func(conn *net.UnixConn, r wire.Request, files []int) {
		answer, _ := json.Marshal(map[string]any{"code": 100 + len(files), "msg": syscall.Errno(r.Errno).Error()})
		_, _ = conn.Write(wire.AppendAnswer(nil, 7, answer))
	})
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code int
		msg  string
	}{
		"":          {100, syscall.Errno(0).Error()},
		dir + "/no": {100, syscall.ENOENT.Error()},
		fifo:        {101, syscall.Errno(0).Error()},
	} {
		r := run(t, bin, confFor(socket), "CNI_COMMAND=ADD", "CNI_NETNS="+path)
		if r.exit != 7 || r.fault.Code != want.code || r.fault.Msg != want.msg {
			t.Errorf("netns %q: exit %d fault %+v, want %+v", path, r.exit, r.fault, want)
		}
	}
}

// TestAgentOfAnotherVersion: an agent that does not know the request's version changes nothing, so the runtime retries
// ADD, and DEL is queued.
func TestAgentOfAnotherVersion(t *testing.T) {
	bin := build(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	agent(t, socket, func(conn *net.UnixConn, _ wire.Request, _ []int) {
		_, _ = conn.Write(wire.AppendOtherVersion(nil))
	})
	if r := run(t, bin, confFor(socket), "CNI_COMMAND=ADD", "CNI_CONTAINERID=c1"); r.fault.Code != 11 ||
		!strings.Contains(r.fault.Msg, wire.ErrVersion.Error()) {
		t.Errorf("ADD: %+v", r)
	}
	if r := run(t, bin, confFor(socket), "CNI_COMMAND=DEL", "CNI_CONTAINERID=c1"); r.exit != 0 {
		t.Errorf("DEL: %+v", r)
	}
	checkQueue(t, socket)
}

func TestBusyAgentIsWaitedFor(t *testing.T) {
	bin := build(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	agent(t, socket, func(conn *net.UnixConn, _ wire.Request, _ []int) {
		time.Sleep(3 * wire.AnswerMillis * time.Millisecond)
		_, _ = conn.Write(wire.AppendAnswer(nil, 0, []byte("late")))
	})
	r := run(t, bin, confFor(socket), "CNI_COMMAND=ADD")
	for try := 0; try < 5 && r.fault.Code == 11; try++ { // this process may not answer a ping in time on a busy host
		r = run(t, bin, confFor(socket), "CNI_COMMAND=ADD")
	}
	if r.exit != 0 || r.stdout != "late" {
		t.Errorf("got %+v", r)
	}
}

func TestAnsweredWithoutAgent(t *testing.T) {
	bin := build(t)
	if r := run(t, bin, ""); r.exit != 0 || r.stdout != "" || !strings.Contains(r.stderr, "CNI_COMMAND") {
		t.Errorf("no command: %+v", r)
	}
	r := run(t, bin, `{"cniVersion":"1.0.0"}`, "CNI_COMMAND=VERSION")
	var v struct{ SupportedVersions []string }
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.exit != 0 || len(v.SupportedVersions) != 7 {
		t.Errorf("VERSION: %+v %v", r, err)
	}
	for name, c := range map[string]struct {
		conf string
		env  []string
		code int
	}{
		"relative socket": {`{"socket":"agent.sock"}`, []string{"CNI_COMMAND=ADD"}, 7},
		"long socket":     {`{"socket":"/` + strings.Repeat("x", 107) + `"}`, []string{"CNI_COMMAND=DEL"}, 7},
		"large conf":      {strings.Repeat(" ", wire.MaxConf+1), []string{"CNI_COMMAND=DEL"}, 7},
		"large env":       {"{}", []string{"CNI_COMMAND=ADD", "CNI_ARGS=" + strings.Repeat("x", wire.MaxEnv)}, 4},
		"unknown verb":    {confFor(t.TempDir() + "/no.sock"), []string{"CNI_COMMAND=BEND"}, 4},
	} {
		if r := run(t, bin, c.conf, c.env...); r.exit != 1 || r.fault.Code != c.code {
			t.Errorf("%s: exit %d fault %+v, want code %d", name, r.exit, r.fault, c.code)
		}
	}
}
