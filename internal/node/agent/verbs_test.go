// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/nettest"
)

// TestVerbs executes every verb through libcni, weft-cni and the agent.
func TestVerbs(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.1.0"} {
		for _, name := range []string{"ptp", "bridge", "chain", "guarded"} {
			t.Run(name+" "+version, func(t *testing.T) {
				w := newWorld(t)
				w.start()
				walk(t, w, name, version)
			})
		}
	}
}

func walk(t *testing.T, w *world, name, version string) {
	before := w.host()
	list, ns := w.list(version, w.networks()[name]), nettest.NS(t, "pod")
	if err := w.cni.GetStatusNetworkList(w.ctx(), list); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatalf("ADD: %v\n%s", err, w.log())
	}
	if r.CNIVersion != "1.0.0" && r.CNIVersion != "1.1.0" || len(r.IPs) != 1 || len(r.Interfaces) < 2 {
		t.Fatalf("ADD: %+v", r)
	}
	if name == "chain" && (len(r.DNS.Nameservers) != 1 || !strings.Contains(w.files("marks"), "c1_eth0")) {
		t.Errorf("the foreign plugin had no part: %+v, marks %s", r, w.files("marks"))
	}
	nettest.Run(t, ns, "ping", "-c1", "-W20", r.IPs[0].Gateway.String())
	if err := w.check(list, "c1", ns); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	again, err := w.add(list, "c1", ns)
	if err != nil || again.IPs[0].Address.String() != r.IPs[0].Address.String() {
		t.Errorf("the same ADD again: %+v, %v", again, err)
	}
	for begin := time.Now(); ; { // the agent may have put it back before CHECK looks, but not a second time
		nettest.Run(t, ns, "ip", "addr", "flush", "dev", "eth0")
		if err = w.check(list, "c1", ns); code(err) == 102 || time.Since(begin) > 30*time.Second {
			break
		}
	}
	if code(err) != 102 {
		t.Errorf("CHECK after an address is gone: code %d, %v", code(err), err)
	}
	for range 2 {
		if err := w.del(list, "c1", ns); err != nil {
			t.Errorf("DEL: %v", err)
		}
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
	w.stop()
	if n := w.records(); n != 0 {
		t.Errorf("%d records left", n)
	}
}

func TestVersionIsNegotiated(t *testing.T) {
	w := newWorld(t)
	info, err := w.cni.GetVersionInfo(w.ctx(), "weft-cni") // no agent
	if err != nil || !slices.Equal(info.SupportedVersions(), cni.Versions()) {
		t.Errorf("VERSION: %v, %v; want %v", info, err, cni.Versions())
	}
	w.start()
	for _, version := range cni.Versions() {
		list, ns := w.list(version, w.networks()["ptp"]), nettest.NS(t, "pod")
		r, err := w.cni.AddNetworkList(w.ctx(), list, runtimeConf("c1", ns))
		if err != nil || r.Version() != version {
			t.Errorf("%s: %v, %v", version, r, err)
		}
		if err := w.del(list, "c1", ns); err != nil {
			t.Errorf("%s: DEL: %v", version, err)
		}
	}
}

func TestGC(t *testing.T) {
	w := newWorld(t)
	w.start()
	before := w.host()
	list := w.list("1.1.0", w.networks()["chain"])
	keep, gone := nettest.NS(t, "keep"), nettest.NS(t, "gone")
	for id, ns := range map[string]string{"keep": keep.Path(), "gone": gone.Path()} {
		rt := runtimeConf(id, keep)
		rt.NetNS = ns
		if _, err := w.cni.AddNetworkList(w.ctx(), list, rt); err != nil {
			t.Fatalf("ADD: %v\n%s", err, w.log())
		}
	}
	w.gc(list, "keep")
	if marks := w.files("marks") + w.files("addresses"); strings.Count(marks, "\n") != 2 ||
		!strings.Contains(marks, "keep_eth0") {
		t.Errorf("after GC: %s", marks)
	}
	if err := w.check(list, "keep", keep); err != nil {
		t.Errorf("GC took a valid attachment: %v", err)
	}
	w.gc(list)
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

func TestThreeNetworks(t *testing.T) {
	w := newWorld(t)
	w.start()
	before := w.host()
	second := strings.Replace(w.networks()["bridge"], "{", `{"cniVersion":"0.4.0","name":"second",`, 1)
	list, ns := w.list("1.0.0", w.networks()["ptp"], second), nettest.NS(t, "pod")
	r, err := w.add(list, "c1", ns)
	if err != nil {
		t.Fatalf("ADD: %v\n%s", err, w.log())
	}
	if len(r.IPs) != 1 || !strings.HasPrefix(r.IPs[0].Address.String(), "10.7.") {
		t.Errorf("the result is not the first network's: %+v", r)
	}
	for dev, prefix := range map[string]string{"eth0": "10.7.", "net1": "10.8."} {
		if out := nettest.Run(t, ns, "ip", "-4", "-o", "addr", "show", "dev", dev); !strings.Contains(out, prefix) {
			t.Errorf("%s: %s", dev, out)
		}
	}
	if err := w.del(list, "c1", ns); err != nil {
		t.Errorf("DEL: %v", err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}

	bad := w.list("1.0.0", w.networks()["ptp"],
		fmt.Sprintf(`{"name":"third","type":"foreign","mark":%q,"fail":"ADD"}`, w.path("marks")))
	if _, err := w.add(bad, "c2", ns); code(err) != 120 || !strings.Contains(err.Error(), "delegates[1] (network third)") {
		t.Errorf("a failing second network: code %d, %v", code(err), err)
	}
	if diff := w.settled(before); diff != "" {
		t.Errorf("a failed ADD left behind: %s", diff)
	}
}

func TestHundredAtOnce(t *testing.T) {
	nettest.EndToEnd(t)
	for _, name := range []string{"ptp", "bridge"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			hundred(t, w, name)
		})
	}
}

func hundred(t *testing.T, w *world, name string) {
	const n = 100
	before := w.host()
	list := w.list("1.0.0", w.networks()[name])
	addresses := make(chan string, n)
	var wg sync.WaitGroup
	spaces := make([]string, n)
	for i := range n {
		ns := nettest.NS(t, fmt.Sprint("pod", i))
		spaces[i] = ns.Path()
		wg.Go(func() {
			r, err := w.add(list, fmt.Sprint("c", i), ns)
			if err != nil {
				t.Errorf("ADD %d: %v", i, err)
				return
			}
			addresses <- r.IPs[0].Address.String()
		})
	}
	wg.Wait()
	close(addresses)
	seen := map[string]bool{}
	for a := range addresses {
		seen[a] = true
	}
	if len(seen) != n {
		t.Errorf("%d different addresses for %d pods", len(seen), n)
	}
	own, mapped := w.rss()
	t.Logf("%s: agent with %d pods: %d KiB of its own, %d KiB of files resident", name, n, own, mapped)
	if own > 20<<10 || own+mapped > 48<<10 {
		t.Errorf("agent with %d pods: %d KiB of its own, more than 20 MiB, or %d KiB with files, more than 48 MiB", n,
			own, own+mapped)
	}
	for i := range n {
		wg.Go(func() {
			rt := runtimeConf(fmt.Sprint("c", i), w.node)
			rt.NetNS = spaces[i]
			if err := w.cni.DelNetworkList(w.ctx(), list, rt); err != nil {
				t.Errorf("DEL %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if diff := w.settled(before); diff != "" {
		t.Errorf("left behind: %s", diff)
	}
}

// rss is the agent's resident memory in KiB: what is its own, and what it has mapped of files, its program first of
// all. The kernel maps as much of these as it happens to have at hand, 16 to 25 MiB of one program, and takes it back
// at need.
func (w *world) rss() (own, mapped int) {
	time.Sleep(100 * time.Millisecond)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.agent.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, _ = fmt.Sscan(rest, &own)
		}
		if rest, ok := strings.CutPrefix(line, "RssFile:"); ok {
			_, _ = fmt.Sscan(rest, &mapped)
		}
	}
	return own, mapped
}
