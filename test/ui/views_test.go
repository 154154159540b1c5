// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// denyNetwork denies all traffic to pods of the namespace default on a further network.
const denyNetwork = `apiVersion: k8s.cni.cncf.io/v1beta1
kind: MultiNetworkPolicy
metadata:
  name: none-on-wire
  namespace: default
  annotations: {k8s.v1.cni.cncf.io/policy-for: macvlan-conf}
spec:
  podSelector: {}
  policyTypes: [Ingress]
`

// denyWeb denies all traffic to the pod default/web.
const denyWeb = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: none-to-web, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
`

// A browser is taken through each view of a live lab: a policy that is applied appears, a blocked pair is explained, and a
// trace shows the rule that drops the packet.
func TestPage(t *testing.T) {
	w := newWorld(t)
	w.emulate("light", 1440, 900)
	do(w, "open the link", chromedp.Navigate(w.url))
	w.sees("2 of 2 agents answer")
	if at := do(w, "address", chromedp.Location()); !strings.HasSuffix(at, "/#/health") {
		t.Errorf("the token stays in the address: %s", at)
	}
	w.open("#/policies", "every pod can connect to every other")
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(denyWeb), 0o600); err != nil {
		t.Fatal(err)
	}
	w.command("lab", "apply", "--dir", w.lab, "-f", policy)
	w.sees("default/none-to-web") // without a reload
	w.sees("1 of 2 pairs")        // of groups of pods, in the matrix
	w.clickLabel("backend to default: ")
	w.sees("Pods of backend (rows)")
	w.shot("matrix")
	w.clickLabel("all pods to app=web: none")
	w.sees("none-to-web")
	w.furtherNetwork()
	w.open("#/why?from=backend%2Fdb&to=default%2Fweb&port=80", "Blocked")
	w.sees("none-to-web")
	w.click("button", "Run a trace")
	w.sees("Seen at")
	w.sees("drop")
	w.click("a", "Show the hops on the map")
	w.sees("last seen here")
	w.drawn(1) // the node whose policy drops it may see it first, in its own
	w.shot("hops-lost")
	w.open("#/why?from=default%2Fweb&to=backend%2Fdb", "Nothing is in the way")
	w.click("button", "Run a trace")
	w.sees("arrived")
	w.click("a", "Show the hops on the map")
	w.sees("answer at default/web")
	w.drawn(4)
	w.shot("hops")
	w.open("#/flows?verdict=denied%2Cdropped", "Verdict")
	w.sees("seen since")
	for range 3 {
		w.packet("backend/db", "default/web")
	}
	w.sees("NetworkPolicy default/none-to-web")
	w.deniedRate()
	w.deniedPackets()
	w.screenTimes()
	w.open("#/map?traffic=1", "Traffic of the last minute")
	w.packet("backend/db", "default/web")
	w.sees("backend/db to default/web: ")
	w.shot("traffic-light-1440")
	w.redEdge()
	w.click("a", "Show on the map")
	w.sees("backend/db to default/web")
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range [][2]int64{{1440, 900}, {390, 844}} {
			w.emulate(scheme, size[0], size[1])
			for _, v := range []struct{ name, hash, text string }{
				{"health", "#/health", "agents answer"},
				{"map", "#/map?from=backend%2Fdb&to=default%2Fweb&state=blocked", "default/web"},
				{"node", "#/map?focus=node%3Anode1", "node node1"},
				{"flows", "#/flows", "Newest first"},
				{"why", "#/why?from=backend%2Fdb&to=default%2Fweb&port=80", "Blocked"},
				{"policies", "#/policies", "none-to-web"},
				{"matrix", "#/policies?from=backend&to=default", "app=web"},
				{"addresses", "#/addresses", "10.42."},
				{"vms", "#/vms", "No VM migrates"},
			} {
				at := fmt.Sprintf("%s-%s-%d", v.name, scheme, size[0])
				w.open(v.hash, v.text)
				w.accessible(at)
				w.narrow(at)
				w.visible(at)
				w.shot(at)
			}
		}
	}
	w.keyboard()
	w.zoomed()
	w.stale()
}

// furtherNetwork chooses a further network for the matrix: only its policy decides there.
func (w *world) furtherNetwork() {
	w.t.Helper()
	policy := filepath.Join(w.t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(denyNetwork), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.open("#/policies", "default/macvlan-conf (1)")
	do(w, "choose a network", chromedp.Evaluate[chromedp.Void](`(() => {
		const s = [...document.querySelectorAll("select")].find(s => s.textContent.includes("macvlan-conf"))
		s.value = "default/macvlan-conf"
		s.dispatchEvent(new Event("change", { bubbles: true }))
	})()`))
	w.sees("1 pod, 1 group") // of default, and no other namespace
	w.command("lab", "apply", "--dir", w.lab, "-f", policy)
	w.sees("of default/macvlan-conf") // the policy's network
	w.clickLabel("outside of the cluster to default: none")
	w.sees("Pods of outside of the cluster (rows)")
	w.sees("two-networks")
	w.accessible("matrix of a network")
	w.shot("matrix-network")
}

// deniedRate sees the denied packets as a red line of the chart of flows, and in its table.
func (w *world) deniedRate() {
	w.t.Helper()
	w.open("#/flows?pod=backend%2Fdb", "Flows per second, last 5 minutes")
	for _, scheme := range []string{"light", "dark"} {
		w.emulate(scheme, 1440, 900)
		do(w, "line of denied packets", chromedp.Poll[bool](`(() => {
			const canvas = document.querySelector(".chart canvas")
			if (!canvas || !document.querySelector(".plot").ariaLabel.includes("denied")) return false
			const row = [...document.querySelectorAll(".chart tr")].find(r => r.textContent.startsWith("denied"))
			if (!(Number(row.lastElementChild.textContent) > 0)) return false
			const line = getComputedStyle(document.documentElement).getPropertyValue("--bad-line").match(/[0-9a-f]{2}/g).map(h => parseInt(h, 16))
			const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
			let drawn = 0
			for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200 && line.every((c, j) => Math.abs(data[i + j] - c) < 12)) drawn++
			return drawn > 20
		})()`, chromedp.WithPollingInterval(100*time.Millisecond)))
		w.shot("rates-" + scheme)
	}
	w.emulate("light", 1440, 900)
	w.open("#/flows?pod=backend%2Fnobody", "Nothing to draw: since ")
}

// deniedPackets sees the packets that are denied while the view Health is open in its chart.
func (w *world) deniedPackets() {
	w.t.Helper()
	w.open("#/health", "Denied packets per second, last 15 minutes")
	for range 3 {
		w.packet("backend/db", "default/web")
	}
	do(w, "denied packets", chromedp.Poll[bool](`(() => {
		const row = [...document.querySelectorAll(".chart tr")].find(r => r.textContent.startsWith("denied"))
		return !!row && Number(row.lastElementChild.textContent) >= 3 && !!document.querySelector(".chart canvas")
	})()`, chromedp.WithPollingInterval(100*time.Millisecond)))
	w.shot("denied")
	w.click("a", "See which")
	w.sees("Newest first")
}

// screenTimes prints how long it takes until the row of a packet is on the screen. It depends on the host.
func (w *world) screenTimes() {
	w.t.Helper()
	const packets, first = 21, 31000
	w.open("#/flows?pod=backend%2Fdb", "Newest first")
	do(w, "watch the rows", chromedp.Evaluate[chromedp.Void](`(() => {
		window.rows = {}
		new MutationObserver(() => {
			for (const [, port] of document.body.textContent.matchAll(/:(31\d{3})(?!\d)/g)) rows[port] ??= Date.now()
		}).observe(document.body, { subtree: true, childList: true, characterData: true })
	})()`))
	to := strings.Fields(w.command("lab", "exec", "--dir", w.lab, "default/pinned", "--", "hostname", "-I"))[0]
	script := fmt.Sprintf(`for i in $(seq 0 %d); do date +%%s%%3N; echo > /dev/udp/%s/$((%d + i)); sleep 0.3; done`, packets-1, to, first)
	sent := strings.Fields(w.command("lab", "exec", "--dir", w.lab, "backend/db", "--", "bash", "-c", script))
	do(w, "rows of all packets", chromedp.Poll[bool](fmt.Sprintf("Object.keys(rows).length >= %d", packets)))
	shown := do(w, "times", chromedp.Evaluate[map[string]int64]("rows"))
	var took []time.Duration
	for i, at := range sent {
		ms, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			w.t.Fatalf("times of packets: %v", err)
		}
		took = append(took, time.Duration(shown[strconv.Itoa(first+i)]-ms)*time.Millisecond)
	}
	slices.Sort(took)
	w.t.Logf("from the packet to its row on the screen: p50 %v, p95 %v, of %d", took[len(took)/2], took[len(took)*95/100], len(took))
}

// redEdge chooses the edge of denied packets, which is red, and sees why.
func (w *world) redEdge() {
	w.t.Helper()
	do(w, "red edge", chromedp.Poll[bool](`(() => {
		const edge = [...document.querySelectorAll("a.traffic.bad")].find(e => e.querySelector("title").textContent.startsWith("backend/db to default/web: "))
		if (!edge) return false
		const [red, green, blue] = getComputedStyle(edge.querySelector("path")).stroke.match(/\d+/g).map(Number)
		if (red < 2 * green || red < 2 * blue) return false
		edge.focus()
		return true
	})()`, chromedp.WithPollingInterval(100*time.Millisecond)))
	do(w, "enter", chromedp.KeyEvent(kb.Enter))
	w.sees("Blocked")
	w.sees("none-to-web")
}

// drawn checks that at least so many hops are drawn on the map.
func (w *world) drawn(hops int) {
	w.t.Helper()
	do(w, "hops", chromedp.Poll[bool](fmt.Sprintf(`document.querySelectorAll(".hops-drawn circle").length >= %d`, hops)))
}

// visible checks that no finding and no state is outside of the screen at its left, where only readers of screens find it.
func (w *world) visible(at string) {
	w.t.Helper()
	hidden := do(w, "position", chromedp.Evaluate[int](
		`[...document.querySelectorAll(".findings li, .badge")].filter(e => e.getBoundingClientRect().right < 0).length`))
	if hidden > 0 {
		w.t.Errorf("%s: %d findings or states cannot be seen", at, hidden)
	}
}

// narrow checks that the page itself is not wider than the screen.
func (w *world) narrow(at string) {
	w.t.Helper()
	over := do(w, "width", chromedp.Evaluate[int]("document.documentElement.scrollWidth - innerWidth"))
	if over > 0 {
		w.t.Errorf("%s: the page is %d pixels wider than the screen", at, over)
	}
}

// packet sends a packet from a pod to another one, which may be denied.
func (w *world) packet(from, to string) {
	w.t.Helper()
	_ = exec.CommandContext(w.t.Context(), w.weft, "trace", "--dir", w.lab, from, to+":80").Run() // 1: it was lost
}

// keyboard goes to another view, and from a pod of the map to an explanation, without a mouse.
func (w *world) keyboard() {
	w.t.Helper()
	w.emulate("light", 1440, 900)
	w.open("#/health", "agents answer")
	do(w, "focus", chromedp.Evaluate[chromedp.Void](`document.querySelector("nav a").focus()`))
	for _, view := range []string{"Health", "Map"} { // Health is after the brand
		do(w, "tab", chromedp.KeyEvent(kb.Tab))
		if at := do(w, "focus", chromedp.Evaluate[string]("document.activeElement.textContent")); at != view {
			w.t.Errorf("tab leads to %q, want %q", at, view)
		}
	}
	do(w, "enter", chromedp.KeyEvent(kb.Enter))
	w.sees("default/pinned")
	for _, pod := range []string{"db", "web"} {
		do(w, "focus", chromedp.Poll[bool](fmt.Sprintf(
			`(() => { const e = [...document.querySelectorAll("a.chip")].find(e => e.querySelector("text").textContent === %q); if (e) e.focus(); return !!e })()`, pod)))
		do(w, "enter", chromedp.KeyEvent(kb.Enter))
		if pod == "db" {
			w.sees("choose the other end")
		}
	}
	w.sees("none-to-web")
}

// zoomed checks that at 400 % of a screen of 1280 pixels no view is wider than the screen.
func (w *world) zoomed() {
	w.t.Helper()
	w.emulate("light", 320, 256)
	for hash, text := range map[string]string{
		"#/health": "agents answer", "#/map": "default/web", "#/flows": "Newest first", "#/policies": "none-to-web",
		"#/addresses": "10.42.", "#/vms": "No VM migrates", "#/why?from=backend%2Fdb&to=default%2Fweb": "Blocked",
	} {
		w.open(hash, text)
		w.narrow("400 % " + hash)
	}
}

// stale ends an agent, and then the page's server: the page reports both, and keeps what it has shown.
func (w *world) stale() {
	w.t.Helper()
	w.emulate("light", 1440, 900)
	w.open("#/health", "2 of 2 agents answer")
	text, err := os.ReadFile(filepath.Join(w.lab, "nodes/node2/agent.pid"))
	if err != nil {
		w.t.Fatal(err)
	}
	var process struct{ PID int }
	if err := json.Unmarshal(text, &process); err != nil || process.PID <= 0 {
		w.t.Fatalf("process of the agent: %v: %s", err, text)
	}
	if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.sees("1 of 2 agents answer")
	w.sees("the agent does not answer")
	w.shot("silent-health")
	w.open("#/map", "no answer")
	w.shot("silent-map")
	if err := w.server.Signal(os.Interrupt); err != nil {
		w.t.Fatal(err)
	}
	w.sees("weft ui does not answer since")
	w.sees("What is below is as of")
	w.sees("backend/db")
	w.shot("lost")
}
