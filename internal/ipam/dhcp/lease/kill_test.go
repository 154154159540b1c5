// SPDX-License-Identifier: Apache-2.0

package lease_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/ipam/dhcp/lease"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// These are the variables of TestKilledAtEveryStep's child process.
const (
	childStep = "WEFT_TEST_DHCP_STEP"
	childDir  = "WEFT_TEST_DHCP_DIR"
	childNS   = "WEFT_TEST_DHCP_NS"
	childVerb = "WEFT_TEST_DHCP_VERB"
)

// TestChild is not a test: it is a manager that kills itself at a failpoint of an ADD or a DEL.
func TestChild(t *testing.T) {
	step, err := strconv.Atoi(os.Getenv(childStep))
	if err != nil {
		t.Skip("only for TestKilledAtEveryStep")
	}
	w := &wire{t: t, dir: os.Getenv(childDir)}
	ns, err := netns.Open(os.Getenv(childNS))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	k := w.manager(func(c *lease.Config) {
		c.Failpoint = func(name string) error {
			if n++; n > step {
				fmt.Println("killed at step", name)
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}
	})
	a := req(ns, "c1", `,"ipv6":true`)
	if os.Getenv(childVerb) == "DEL" {
		if err := k.Del(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		return
	}
	w.add(k, a)
}

// After a kill at any failpoint of an ADD or a DEL, a DEL leaves nothing, on the node and at the server.
func TestKilledAtEveryStep(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWire(t)
	w.serve(range4, range6)
	for _, verb := range []string{"ADD", "DEL"} {
		for step := 0; ; step++ {
			ns := w.pod()
			a := req(ns, "c1", `,"ipv6":true`)
			if verb == "DEL" {
				k := w.manager()
				w.add(k, a)
				if err := k.Close(); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			cmd.Env = append(os.Environ(), childStep+"="+strconv.Itoa(step), childDir+"="+w.dir, childNS+"="+ns.Path(),
				childVerb+"="+verb)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL) {
				t.Fatalf("%s, step %d: %v\n%s", verb, step, err, out)
			}
			at := "the end"
			if _, after, found := strings.Cut(string(out), "killed at step "); found {
				at, _, _ = strings.Cut(after, "\n")
			}
			k := w.manager()
			if err := k.Del(t.Context(), a); err != nil {
				t.Fatalf("%s, killed at %s: DEL: %v", verb, at, err)
			}
			w.until(fmt.Sprintf("%s, killed at %s: the server has its addresses back", verb, at), func() bool {
				return w.leased() == ""
			})
			if left := w.files(); len(left) > 0 {
				t.Errorf("%s, killed at %s: files left: %v", verb, at, left)
			}
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			if err == nil && at == "the end" {
				if step < 3 {
					t.Errorf("%s has only %d steps", verb, step)
				}
				break
			}
		}
	}
}
