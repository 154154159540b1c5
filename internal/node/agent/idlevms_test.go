// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestIdleVMs measures an agent while WEFT_IDLE_VMS VMs are idle, of both bindings in turns: their taps are open, and nothing
// is sent, as by guests with leases of a day. It takes a minute and is not part of the tests; docs/design/performance-vm.md has
// the results.
func TestIdleVMs(t *testing.T) {
	nettest.EndToEnd(t)
	vms, err := strconv.Atoi(os.Getenv("WEFT_IDLE_VMS"))
	if err != nil {
		t.Skip("a measurement: set WEFT_IDLE_VMS to the number of VMs")
	}
	nettest.Need(t, "tap")
	span := time.Minute
	if n, err := strconv.Atoi(os.Getenv("WEFT_IDLE_SECONDS")); err == nil {
		span = time.Duration(n) * time.Second
	}
	w := newWorld(t)
	w.start()
	reported := func(what string) {
		time.Sleep(20 * time.Second) // what has begun ends
		before := spent(t, w)
		time.Sleep(span)
		cpu := spent(t, w) - before
		t.Logf("%s: %s of CPU in %s, %.3f%% of one processor; resident %d KiB", what, cpu, span,
			100*cpu.Seconds()/span.Seconds(), resident(t, w, "VmRSS"))
	}
	reported("no VM")
	list, before, began := w.list("1.1.0", w.routedOr("routed")), spent(t, w), time.Now()
	for i := range vms {
		id := fmt.Sprint("c", i)
		ns := nettest.NS(t, id)
		if _, err := w.add(list, id, ns); err != nil {
			t.Fatal(err)
		}
		binding := model.VMDirect
		if i%2 == 1 {
			binding = model.VMMasquerade
		}
		in := vmInput(binding)
		in.VM.Name, in.VM.Hostname = fmt.Sprint("vm", i), fmt.Sprint("vm", i)
		d := w.startVM(ns, in).Networks[0].Device
		tap := nettest.OpenTap(t, ns, d.Target, d.Queues > 1)
		go func() {
			for b := make([]byte, 1<<16); ; { // a guest takes what comes
				if _, err := tap.Read(b); err != nil {
					return
				}
			}
		}()
	}
	t.Logf("%d VMs have begun after %s, by %s of the agent's CPU", vms, time.Since(began).Round(time.Millisecond), spent(t, w)-before)
	reported(fmt.Sprint(vms, " VMs"))
}
