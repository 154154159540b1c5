// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/node/migration"
)

// vm runs a weft vm command on the node, and returns its output and its exit code.
func (w *world) vm(args ...string) (stdout, stderr string, exit int) {
	w.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft"),
		append(append([]string{"vm"}, args...), "--state-dir", w.path("state"))...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := w.node.Do(cmd.Run)
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		w.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// is waits until the agent reports that state of the VM's attachment on its node.
func (p two) is(m *vmPod, state string) {
	p.t.Helper()
	line := ""
	p.until(fmt.Sprintf("%s is %s", m.id, state), func() bool {
		out, errs, exit := m.node.vm("moves")
		if exit != 0 {
			p.t.Fatalf("%d %s", exit, errs)
		}
		for line = range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 6 && f[5] == m.id {
				return f[0] == "default/db" && f[1] == state && f[2] == fmt.Sprintf("%s,%s", m.addrs[0], m.addrs[1]) &&
					f[4] == "eth0"
			}
		}
		return false
	})
}

// TestSilentGuestMigrates: with masquerade binding an idle guest sends no packets that the agent could receive. The
// start of a migration, or its failure, changes nothing; when the VM's status names the other node, all nodes route
// there. Operators can report it, too.
func TestSilentGuestMigrates(t *testing.T) {
	nettest.EndToEnd(t)
	nettest.Need(t, "vxlan")
	nettest.Need(t, "tap")
	p := newTwo(t, twoPools)
	n1, n2 := p.nodes[0], p.nodes[1]
	status := func(text string) {
		t.Helper()
		o, err := store.NewObject(
			[]byte(
				`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"namespace": "default", "name": "db"}, "status": ` + text + `}`,
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		if was, missing := p.store.Get(o.Key); missing == nil {
			err = p.store.CompareAndSwap(t.Context(), was.Version, o)
		} else {
			_, err = p.store.Create(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	status(`{"nodeName": "n1"}`)
	a := p.vmPod(n1, "a", false)
	b := p.vmPod(n2, "b", true)
	n1.startVM(a.ns, vmInput(model.VMMasquerade))
	n2.startVM(b.ns, vmInput(model.VMMasquerade))
	p.is(a, "here")
	for _, before := range []string{
		`{"nodeName": "n1", "migrationState": {"sourceNode": "n1", "targetNode": "n2"}}`,
		`{"nodeName": "n1", "migrationState": {"sourceNode": "n1", "targetNode": "n2", "completed": true, "failed": true}}`,
	} {
		status(before)
		time.Sleep(2 * time.Second) // it is looked at each second
		p.is(b, "awaited")
		p.is(a, "here")
	}
	status(`{"nodeName": "n2", "migrationState": {"sourceNode": "n1", "targetNode": "n2", "completed": true}}`)
	p.is(b, "here")
	p.is(a, "left")
	p.moves(0)
	for _, addr := range b.addrs {
		for what, is := range map[string]struct {
			node *netns.NS
			way  string
		}{
			"on the node that the machine has gone to": {n2.node, "dev cali"},
			"on the node that it came from":            {n1.node, " via "},
		} {
			p.until("the way to "+addr.String()+" "+what, func() bool {
				out, err := nettest.Try(is.node, "ip", "route", "get", addr.String())
				return err == nil && strings.Contains(out, is.way)
			})
		}
	}

	if _, errs, exit := n1.vm("here", "default/none"); exit != 1 ||
		!strings.Contains(errs, "VM default/none has no attachment on this node that can be switched") {
		t.Errorf("%d %q", exit, errs)
	}
	if out, errs, exit := n1.vm("here", "default/db"); out+errs != "" || exit != 0 {
		t.Errorf("%d %q %q", exit, out, errs)
	}
	p.is(a, "here")
	p.is(b, "left")
	var all []migration.Attachment
	out, _, _ := n1.vm("moves", "-o", "json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0].State != "here" ||
		all[0].Key.ContainerID != "a" || fmt.Sprint(all[0].Addresses) != fmt.Sprint(a.addrs) {
		t.Errorf("%v %s", err, out)
	}
	b.del(t)
	a.del(t)
	if out, _, exit := n2.vm("moves"); exit != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("%d %q", exit, out)
	}
}
