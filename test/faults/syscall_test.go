// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/nettest"
)

// tracedCalls are the system calls by which a plugin changes or queries state.
const tracedCalls = "write,pwrite64,sendto,sendmsg,openat,rename,renameat,renameat2,unlink,unlinkat,linkat,mkdirat,setns,flock"

// runTraced runs a plugin under strace, which kills it at the k-th traced system call of a thread.
func (w *world) runTraced(verb, conf string, p *pod, k int) (killed bool) {
	w.t.Helper()
	cmd := exec.Command("strace", "-f", "-q", "-o", "/dev/null", "-e", "trace="+tracedCalls,
		"-e", fmt.Sprintf("inject=%s:signal=KILL:when=%d", tracedCalls, k), filepath.Join(w.bin, "bridge"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_PATH="+w.bin, "WEFT_JOURNAL_DIR="+w.journal,
		"CNI_CONTAINERID="+p.id, "CNI_IFNAME=eth0", "CNI_NETNS="+p.netns, "GOMAXPROCS=1")
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status := exit.Sys().(syscall.WaitStatus)
		killed = status.Signaled() || status.ExitStatus() == 128+int(syscall.SIGKILL)
	}
	if err != nil && !killed {
		w.t.Fatalf("strace: %v %s", err, &out)
	}
	return killed
}

// After a plugin is killed at any of these system calls, DEL undoes everything.
func TestPluginKilledAtEverySystemCall(t *testing.T) {
	if out, err := nettest.Try(nil, "strace", "-q", "-o", "/dev/null", "true"); err != nil {
		nettest.Skip(t, "strace does not work here: "+out)
	}
	stride := 1
	if testing.Short() {
		stride = 6
	}
	w := newWorld(t)
	conf := w.conf("bridge")
	other := w.pod()
	w.mustCall("ADD", conf, other)
	before := takeSnapshot(t, w.dirs()...)
	kills := 0
	for _, verb := range []string{"ADD", "DEL"} {
		for k := 1; ; k += stride {
			p := w.pod()
			if verb == "DEL" {
				w.mustCall("ADD", conf, p)
			}
			killed := w.runTraced(verb, conf, p, k)
			if k%2 == 0 {
				w.removeNetns(p)
			}
			w.mustCall("DEL", conf, p)
			expectSameHost(t, fmt.Sprintf("%s killed at system call %d", verb, k), before, w.dirs()...)
			w.removeNetns(p)
			if !killed {
				break
			}
			kills++
		}
	}
	t.Logf("%d kills, all in live calls", kills)
	if kills < 20/stride {
		t.Errorf("only %d kills", kills)
	}
}
