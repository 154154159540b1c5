// SPDX-License-Identifier: Apache-2.0

package scale_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// audit is the audit log of the API server: each request of the agents with the time at which it came.
type audit struct{ policy, log string }

func newAudit(t *testing.T) audit {
	t.Helper()
	dir := t.TempDir()
	a := audit{filepath.Join(dir, "policy.json"), filepath.Join(dir, "audit.log")}
	policy := `{"apiVersion":"audit.k8s.io/v1","kind":"Policy",
"omitStages":["ResponseStarted"],"rules":[{"level":"Metadata"}]}`
	if err := os.WriteFile(a.policy, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// args returns the API server's arguments.
func (a audit) args() []string {
	return []string{"--audit-policy-file=" + a.policy, "--audit-log-path=" + a.log, "--audit-log-maxsize=4000"}
}

// request is one line of the log.
type request struct {
	Verb       string    `json:"verb"`
	URI        string    `json:"requestURI"`
	UserAgent  string    `json:"userAgent"`
	ReceivedAt time.Time `json:"requestReceivedTimestamp"`
	Object     struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	Stage    string `json:"stage"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	at time.Duration // since the begin
}

// whole reports whether the response has all objects.
func (r request) whole() bool {
	return r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
}

// requests are sorted by time.
type requests []request

// since returns the agents' requests since a moment, and how many of them were answered by which error. A server that is
// killed may leave a part of a line.
func (a audit) since(t *testing.T, begin time.Time) (out requests, refused map[string]int) {
	t.Helper()
	all, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	refused = map[string]int{}
	for line := range bytes.Lines(all) {
		var r request
		if json.Unmarshal(line, &r) != nil || r.UserAgent != userAgent || r.ReceivedAt.Before(begin) {
			continue
		}
		if r.Stage != "RequestReceived" {
			if r.Response.Code >= 400 {
				refused[fmt.Sprint(r.Response.Code, " ", r.Object.Resource)]++
			}
			continue
		}
		r.at = r.ReceivedAt.Sub(begin)
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b request) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
	return out, refused
}

// byKind counts requests.
func (all requests) byKind() map[string]int {
	out := map[string]int{}
	for _, r := range all {
		kind := r.Verb
		if r.whole() && r.Verb != "list" {
			kind = "watch from the begin"
		}
		out[kind+" "+r.Object.Resource]++
	}
	return out
}

// times returns when requests came that list everything, or those that do not.
func (all requests) times(whole bool) (out []time.Duration) {
	for _, r := range all {
		if r.whole() == whole {
			out = append(out, r.at)
		}
	}
	return out
}
