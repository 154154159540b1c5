// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/flow"
)

// TestObserve: weft observe follows the flows of both nodes through the API server: a connection to a Service has the
// Service, both pods and the policy that allows it, and what a policy denies is seen.
func TestObserve(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	c.kubectl(t, "-n", ns, "expose", "deployment", "web", "--port=80", "--target-port=8080")
	c.apply(t, ns, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, "+
		"spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080}]}]}}")
	ip := strings.TrimSpace(c.kubectl(t, "-n", ns, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	c.onNode(t, program)
	a, b := pods[0], pods[1]
	var seen string
	eventually(t, 3*time.Minute, func() error {
		type result struct {
			out string
			err error
		}
		done := make(chan result, 1)
		go func() {
			out, err := c.try("exec", "control", program, "observe", "--duration", "12s", "-o", "jsonl", "-n", ns)
			done <- result{out, err}
		}()
		var r result
		for running := true; running; {
			select {
			case r = <-done:
				running = false
			default:
				_, _ = c.dial(a, "http", ip, 80)               // to both pods in turn
				_, _ = c.dial(a, "http", b.Status.PodIP, 8081) // denied
			}
		}
		if seen = r.out; r.err != nil {
			return fmt.Errorf("weft observe: %s%w", r.out, r.err)
		}
		return observedAll(r.out, ns, a.Metadata.Name, b.Metadata.Name)
	})
	if t.Failed() {
		t.Logf("seen: %s", seen)
	}
}

// observedAll returns an error about a flow that is missing among documents.
func observedAll(documents, ns, a, b string) error {
	service, allowed, denied := false, false, false
	for line := range strings.Lines(documents) {
		var r flow.Record
		if json.Unmarshal([]byte(line), &r) != nil {
			continue
		}
		if r.From.Name != ns+"/"+a || r.To.Name != ns+"/"+b {
			continue
		}
		decided := len(r.Decisions) > 0 && len(r.Decisions[0].Policies) > 0 && r.Decisions[0].Policies[0].Name == "web"
		switch {
		case r.Kind == flow.New && r.Via != nil && r.Via.Kind == flow.ServiceEnd && r.Via.Name == ns+"/web" && r.Via.Port == 80:
			service = true
		case r.Kind == flow.New && r.Direction == flow.Ingress && r.To.Port == 8080 && decided:
			allowed = true
		case r.Kind == flow.Denied && r.To.Port == 8081 && decided:
			denied = true
		}
	}
	if !service || !allowed || !denied {
		return fmt.Errorf("seen: the Service %t, the policy that allows %t, a denied packet %t", service, allowed, denied)
	}
	return nil
}
