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
)

// pageScript starts weft ui, opens a session with its link, and prints the first event of each view, a line each with the
// view's query before it, and then the answer of the action why. $1 is weft, $2 the form of why; the others are queries.
const pageScript = `set -eu
weft=$1 form=$2; shift 2
dir=$(mktemp -d)
"$weft" ui </dev/null >"$dir/out" 2>"$dir/err" & ui=$!
trap 'kill $ui 2>/dev/null || true; wait $ui 2>/dev/null || true; cat "$dir/err" >&2; rm -rf "$dir"' EXIT
until [ -s "$dir/out" ]; do kill -0 $ui; sleep 0.1; done
link=$(head -n 1 "$dir/out") base=${link%%/#*} token=${link##*token=}
session() { curl -s -o "$dir/refused" -w '%{http_code}' -c "$dir/jar" -X POST -H 'X-Weft-Request: 1' -H "X-Weft-Token: $1" "$base/api/session"; }
code() { curl -s -o "$dir/refused" -w '%{http_code}' "$@"; }
echo "without a session: $(code "$base/api/events?view=health")"
echo "wrong token: $(session x) right token: $(session "$token") again: $(code -X POST -H 'X-Weft-Request: 1' -H "X-Weft-Token: $token" "$base/api/session")"
echo "another host: $(code -b "$dir/jar" -H 'Host: evil.example' "$base/api/events?view=health")"
for query; do
	echo "$query"
	curl -sN --max-time 60 -b "$dir/jar" "$base/api/events?view=$query" >"$dir/events" & stream=$!
	until grep -q '^$' "$dir/events"; do kill -0 $stream; sleep 0.1; done
	kill $stream
	wait $stream || true
	head -n 1 "$dir/events"
done
echo why
curl -s --max-time 60 -b "$dir/jar" -H 'X-Weft-Request: 1' -d "$form" "$base/api/why"
echo
`

// TestPage: weft ui serves its views from the API server and the agents, through kubectl exec, to a client that has the link.
func TestPage(t *testing.T) {
	c := weft(t)
	ns := c.namespace(t)
	pods := c.rollOut(t, ns, "web", 2)
	c.apply(t, ns, "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, "+
		"spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 8080}]}]}}")
	program, err := filepath.Abs("../../../bin/image/" + runtime.GOARCH + "/weft")
	if err != nil {
		t.Fatal(err)
	}
	a, b := ns+"/"+pods[0].Metadata.Name, ns+"/"+pods[1].Metadata.Name
	form := fmt.Sprintf("from=%s&to=%s&port=8081&protocol=tcp", a, b)
	want := map[string]string{
		"health":                          `"answered":2,"nodes":2,`,
		"map&find=" + ns:                  `"name":"` + a + `"`,
		"policies":                        `"name":"` + ns + `/web"`,
		"matrix&find=" + ns:               `"text":"2 pods, 1 group"`,
		"matrix&from=" + ns + "&to=" + ns: `"verdict":"some","text":"8080/tcp"`,
		"addresses&find=" + ns:            `"user":"` + a + `"`,
		"vms":                             `"migrations":[`,
		"ends&find=" + ns:                 `"` + b + `"`,
		"flows":                           `"command":"weft observe -f"`,
	}
	args := []string{"control", "bash", "-c", pageScript, "page", program, form}
	for query := range want {
		args = append(args, query)
	}
	eventually(t, 3*time.Minute, func() error { // agents learn of the policy a little later
		out, err := c.try("exec", args...)
		if err != nil {
			return fmt.Errorf("weft ui: %w: %s", err, out)
		}
		return pageShows(out, want)
	})
}

// pageShows returns an error about what is missing in the output of pageScript.
func pageShows(out string, want map[string]string) error {
	answers := map[string]string{}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines[:len(lines)-1] {
		if _, is := want[l]; is || l == "why" {
			answers[l] = lines[i+1]
		}
	}
	for _, refused := range []string{
		"without a session: 401", "wrong token: 401 right token: 204 again: 401", "another host: 421",
	} {
		if !strings.Contains(out, refused) {
			return fmt.Errorf("want %q in: %s", refused, out)
		}
	}
	for query, text := range want {
		if !strings.Contains(answers[query], text) || strings.Contains(answers[query], `"stale"`) {
			return fmt.Errorf("view %s: %.3000s, want %s", query, answers[query], text)
		}
	}
	var why struct {
		Reports []struct {
			State   string
			Forward []struct{ ID, State, Cause string }
		}
		Silent []string
	}
	if err := json.Unmarshal([]byte(answers["why"]), &why); err != nil {
		return fmt.Errorf("why: %w: %s", err, answers["why"])
	}
	for _, r := range why.Reports {
		for _, h := range r.Forward {
			if h.ID == "ingress" && h.State == "blocked" && len(why.Silent) == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("why: port 8081, which a policy denies, is not blocked by it: %s", answers["why"])
}
