// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestKilledWhileProbing: an agent that is killed while it probes for duplicates leaves nothing, and the next one
// attaches the container with the address.
func TestKilledWhileProbing(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	before := w.host()
	conf := func(ms int) string {
		return fmt.Sprintf(`{"type":"bridge","bridge":"br0","isGateway":true,"dadTimeout":%d,"ipam":%s}`, ms, w.ipam("10.8.0.0/16"))
	}
	ns, failed := nettest.NS(t, "pod"), make(chan error, 1)
	list := w.list("1.0.0", conf(10_000))
	go func() {
		_, err := w.add(list, "c1", ns)
		failed <- err
	}()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		// The node's end comes up for the probe.
		if out, err := nettest.Try(ns, "ip", "addr", "show", "dev", "eth0"); err == nil && strings.Contains(out, "LOWER_UP") {
			if strings.Contains(out, "10.8.") {
				t.Fatalf("the address was added before the probe ended:\n%s", out)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatal("the interface does not come up")
		}
	}
	w.kill()
	if err := <-failed; err == nil {
		t.Fatal("the ADD of a killed agent succeeded")
	}
	w.start()
	if err := w.del(list, "c1", ns); err != nil {
		t.Error(err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	list = w.list("1.0.0", conf(100))
	if r, err := w.add(list, "c2", ns); err != nil || len(r.IPs) != 1 {
		t.Errorf("%v %v", r, err)
	}
	if err := w.del(list, "c2", ns); err != nil {
		t.Error(err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}
