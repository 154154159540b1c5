// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// denyWeb denies all traffic to the pod default/web.
const denyWeb = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: nobody-to-web, namespace: default}
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
	w.sees("default/nobody-to-web") // without a reload
	w.open("#/why?from=backend%2Fdb&to=default%2Fweb&port=80", "Blocked")
	w.sees("nobody-to-web")
	w.click("button", "Run a trace")
	w.sees("Seen at")
	w.sees("drop")
	w.open("#/flows?verdict=denied%2Cdropped", "Verdict")
	w.sees("seen since")
	for range 3 {
		w.packet("backend/db", "default/web")
	}
	w.sees("NetworkPolicy default/nobody-to-web")
	w.open("#/map?traffic=1", "Traffic of the last minute")
	w.packet("backend/db", "default/web")
	w.sees("backend/db to default/web: ")
	w.shot("traffic-light-1440")
	w.open("#/why?from=backend%2Fdb&to=default%2Fweb&port=80", "Blocked")
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
				{"policies", "#/policies", "nobody-to-web"},
				{"addresses", "#/addresses", "10.42."},
				{"vms", "#/vms", "No VM migrates"},
			} {
				at := fmt.Sprintf("%s-%s-%d", v.name, scheme, size[0])
				w.open(v.hash, v.text)
				w.accessible(at)
				w.narrow(at)
				w.shot(at)
			}
		}
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
