// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
)

// A lab without connectivity is not up: lab up waits a minute, prints the failed connections, and fails. The lab stays
// for diagnosis.
func TestNoConnectivity(t *testing.T) {
	dir := labDir(t)
	before := takeSnapshot(t, dir)
	cmd := command(t, "lab", "up", "--nodes", "2", "--from", examples2(t), "--dir", dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var ns *netns.NS
	within(t, 20*waitUnit, "a second node", func() (is bool) {
		var err error
		ns, err = netns.Open(lab.Dir(dir).NS("node2"))
		return err == nil
	})
	// lab up is stopped until the packets are dropped, so that it cannot finish before.
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "nft", "add table inet cut; add chain inet cut in { type filter hook prerouting priority -400; }; "+
		`add rule inet cut in iifname != "lo" drop`)
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	said := stderr.String()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, want := range []string{
		"waiting: ", "lab in " + dir + " is incomplete: ", "pairs are not as expected, for example ", "hint: see `weft lab reach",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("up does not print %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "is up in") {
		t.Errorf("up prints that the lab is up:\n%s", said)
	}
	if r, code := reachOf(t, dir); code != 1 || len(r.Failed) == 0 {
		t.Errorf("reach: exit %d, %+v", code, r)
	}
	must(t, "lab", "down", "--dir", dir)
	before.expectSame(t, dir)
}
